import pytest
from pydantic import ValidationError

from pgherd.studies.density.options import DensityRequest
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.shared_options import ClusterRequest, StudyOptions, SwapRequest, of_one_host


def test_options_without_variants_stay_as_they_are():
    options = StudyOptions()
    assert options.variant_options() == {} and options.hosts_in_turn == ()
    assert options.with_variant_options({}) is options and options.on_hosts(("a",)) is options


def test_a_study_that_can_be_spread_runs_here_unless_told_otherwise():
    asked = DensityRequest()
    assert isinstance(asked, ClusterRequest)
    assert (asked.cluster, asked.cluster_certs, asked.placement, asked.on_lost_host, asked.over) == (None, None, "spread", "continue", ())


def test_what_to_do_about_a_lost_host_is_one_of_two():
    with pytest.raises(ValidationError):
        ClusterRequest(on_lost_host="cry")


def test_a_request_of_one_host_knows_of_no_cluster():
    asked = DensityRequest(cluster="x", placement="pack", client_host="b", vcpus=2, databases=(1,))
    found = of_one_host(asked, client_placement="outside")
    assert found == DensityRequest(vcpus=2, databases=(1,), client_placement="outside")
    assert found.model_fields_set == {"vcpus", "databases", "client_placement"}, "what was not asked for is not said to be"


class Both(DatabaseRequest, SwapRequest):
    """As a study's request has it."""


def test_a_studys_request_has_it_beside_its_own():
    asked = Both(swap="zram", swap_size="1GB", host_cores=2)
    assert (asked.swap, str(asked.swap_size), asked.host_cores, asked.zram_mem_limit) == ("zram", "1GB", 2, None)


def test_another_kind_is_refused():
    with pytest.raises(ValidationError):
        SwapRequest(swap="disk")
