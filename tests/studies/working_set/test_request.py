"""What may be asked of a working-set study."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pgherd.studies.working_set.options import WorkingSetRequest


def test_defaults():
    asked = WorkingSetRequest()
    assert asked.sweeps == ("memory", "buffers") and asked.workload == "random-block"
    assert asked.client_place == "outside" and asked.state == "restarted" and asked.precision == 0.05


@pytest.mark.parametrize("given", [{"memory": "1GB"}, {"rate": 10.0}, {"dsn": "dbname=x"}, {"huge_pages": "2MB"}])
def test_what_the_study_decides_itself(given):
    with pytest.raises(ValidationError, match="does not go with a working set"):
        WorkingSetRequest(**given)


@pytest.mark.parametrize("given", [{"start_state": "warm"}, {"initial_sizes": 3}, {"precision": "0%"}, {"vary": ()}, {"vary": ("disk",)}])
def test_what_is_wrong(given):
    with pytest.raises(ValidationError):
        WorkingSetRequest(**given)


def test_precision_in_per_cent():
    assert WorkingSetRequest(precision="3%").precision == 0.03
