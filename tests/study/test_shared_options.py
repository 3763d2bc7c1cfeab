import pytest
from pydantic import ValidationError

from pgherd.studies.density.options import DensityRequest
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.shared_options import ClusterRequest, MeasurementRequest, RepeatsRequest, StudyOptions, SwapRequest, of_one_host


def test_options_without_variants_stay_as_they_are():
    options = StudyOptions()
    assert options.variant_options() == {} and options.hosts_in_turn == ()
    assert options.with_variant_options({}) is options and options.on_hosts(("a",)) is options


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


@pytest.mark.parametrize(("requested", "number"), [({}, 7), ({"repeats": 2}, 2), ({"min_repeats": 3}, 3)])
def test_the_number_of_planned_repeats(requested, number):
    assert RepeatsRequest(**requested).planned_repeats(7) == number


@pytest.mark.parametrize("request_of", [RepeatsRequest, MeasurementRequest])
def test_an_exact_and_a_minimum_number_of_repeats_exclude_each_other(request_of):
    with pytest.raises(ValidationError, match="give one of them"):
        request_of(repeats=2, min_repeats=2)


class Both(DatabaseRequest, SwapRequest):
    """As a study's request has it."""


def test_a_studys_request_has_it_beside_its_own():
    both = Both(swap="zram", swap_size="1GB", host_cores=2)
    assert (both.swap, str(both.swap_size), both.host_cores, both.zram_mem_limit) == ("zram", "1GB", 2, None)


def test_another_kind_is_refused():
    with pytest.raises(ValidationError):
        SwapRequest(swap="disk")
