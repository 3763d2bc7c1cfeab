import pytest
from pydantic import ValidationError

from pgherd.studies.density.request import DensityRequest
from pgherd.studies.spread import SpreadRequest


def test_a_study_that_can_be_spread_runs_here_unless_told_otherwise():
    asked = DensityRequest()
    assert isinstance(asked, SpreadRequest)
    assert (asked.cluster, asked.cluster_tls, asked.placement, asked.on_lost_host, asked.over) == (None, None, "spread", "continue", ())


def test_what_to_do_about_a_lost_host_is_one_of_two():
    with pytest.raises(ValidationError):
        SpreadRequest(on_lost_host="cry")
