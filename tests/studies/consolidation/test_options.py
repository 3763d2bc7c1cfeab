import pytest
from pydantic import ValidationError

from pgherd.studies.consolidation.options import ConsolidationRequest

MB = 2**20


def test_configured_memory_is_the_same_in_every_layout(make_options):
    assert make_options().configured == 8192 * MB


def test_a_rate_leaves_its_part_of_the_configured_memory(make_options):
    options = make_options()
    assert options.available_memory(0) == options.host_memory, "undercommitted: the whole budget"
    assert options.available_memory(0.3) == pytest.approx(0.7 * 8192 * MB)


def test_safe_rate_of_e7s_working_sets(make_options):
    options = make_options(working_set_size=(1376 * MB, 1152 * MB))
    assert options.needed() == (1376 + 1152) * MB
    assert options.max_safe_overcommit() == pytest.approx(0.69, abs=0.005)


def test_when_all_are_busy_at_once_all_need_a_busy_working_set(make_options):
    options = make_options(working_set_size=(1376 * MB, 1152 * MB), plan=((2, 30), (2, 30)))
    assert options.needed() == 2 * 1376 * MB


def test_where_no_database_is_quiet_all_are_busy(make_options):
    options = make_options(working_set_size=(1376 * MB, 1152 * MB), plan=((5, 5), (5, 5)), busy_clients=5, quiet_clients=5)
    assert options.needed() == 2 * 1376 * MB


def test_one_working_set_is_for_both(make_options):
    assert make_options(working_set_size=(1000 * MB,)).needed() == 2000 * MB


def test_without_working_sets_the_safe_rate_is_unknown(make_options):
    assert make_options().needed() is None and make_options().max_safe_overcommit() is None


def test_schemas_are_not_among_the_default_layouts(make_options):
    assert make_options().schemes == ("shared-server", "shared-container", "dedicated", "dedicated-balloon")


def test_e5_and_e6_compare_with_a_shared_layout_of_e4(make_options):
    assert make_options(schemes=("dedicated", "shared-database")).shared_of_e4 is None
    assert make_options(schemes=("shared-container", "dedicated", "shared-database")).shared_of_e4 == "shared-container"


def test_unavailable_layouts_are_not_run(make_options):
    options = make_options(unavailable={"dedicated-balloon": "no compiler"})
    assert options.runnable == ("shared-server", "shared-container", "dedicated")
    assert make_options(**options.model_dump(mode="json")) == options, "as stored in run.json"


@pytest.mark.parametrize(("workload", "unit"), [("orders", "new orders/min"), ("random-block", "tps")])
def test_unit_of_throughput(make_options, workload, unit):
    assert make_options(workload=workload).unit == unit


def test_defaults_are_those_of_the_experiment():
    request = ConsolidationRequest()
    placement = (request.client_placement, request.start_state)
    assert (request.workload, *placement, request.pattern) == ("orders", "outside", "fresh", "alternating")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 3}, "Extra inputs"),
        ({"duration": "5s"}, "set their length with period_length"),
        ({"huge_pages": "2MB"}, "control groups do not count huge pages"),
        ({"runtime": "vm", "vm_huge_pages": "2MB"}, "control groups do not count huge pages"),
        ({"dsn": "host=x"}, "starts the servers"),
        ({"rate": 5.0}, "starts the servers"),
        ({"working_set_size": ("1GB", "2GB", "3GB")}, "then that of a quiet one"),
        ({"databases": 1}, "greater than or equal to 2"),
        ({"preset": "E9"}, "'E4', 'E5' or 'E6'"),
        ({"overcommit_by": "dummy"}, "'cgroup-limit' or 'mlock'"),
        ({"schemas": ("dedicated",)}, "Extra inputs"),
        ({"schemes": (3,)}, "'shared-container', 'dedicated', 'dedicated-balloon' or 'shared-database'"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(ValidationError, match=message):
        ConsolidationRequest.model_validate(options)


def test_an_explicit_null_means_the_default():
    nulls = dict.fromkeys(("warmup", "pattern", "overcommit_by", "schemes", "working_set_size"))
    assert ConsolidationRequest.model_validate(nulls) == ConsolidationRequest()
