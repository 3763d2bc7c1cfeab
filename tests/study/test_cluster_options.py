import pytest
from pydantic import ValidationError

from pgherd.studies.density.options import DensityRequest
from pgherd.study.cluster_options import ClusterRequest, of_one_host


def test_a_study_that_can_be_spread_runs_here_unless_told_otherwise():
    request = DensityRequest()
    assert isinstance(request, ClusterRequest)
    assert (request.cluster, request.cluster_certs, request.placement, request.on_lost_host, request.over) == (
        None,
        None,
        "spread",
        "continue",
        (),
    )


def test_what_to_do_about_a_lost_host_is_one_of_two():
    with pytest.raises(ValidationError):
        ClusterRequest(on_lost_host="cry")


def test_a_request_of_one_host_knows_of_no_cluster():
    request = DensityRequest(cluster="x", placement="pack", client_host="b", vcpus=2, databases=(1,))
    result = of_one_host(request, client_placement="outside")
    assert result == DensityRequest(vcpus=2, databases=(1,), client_placement="outside")
    assert result.model_fields_set == {"vcpus", "databases", "client_placement"}, "what was not asked for is not said to be"
