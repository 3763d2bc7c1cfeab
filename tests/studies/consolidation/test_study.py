from types import SimpleNamespace

import pytest

from pgherd.studies.consolidation.study import benefits


@pytest.mark.parametrize(
    "analysis", [None, SimpleNamespace(tables={}), SimpleNamespace(tables={"consolidation": [{"layout": "shared-container", "trials": 1}]})]
)
def test_a_run_without_a_shared_server_has_no_benefit(analysis):
    assert benefits(SimpleNamespace(analysis=analysis)) == []
