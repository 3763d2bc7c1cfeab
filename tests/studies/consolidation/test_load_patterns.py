import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.studies.consolidation import load_patterns


def plan(pattern, databases=2, periods=None, high=30, low=2):
    return load_patterns.client_plan(pattern, databases=databases, periods=periods, high=high, low=low)


def test_alternating_is_e4s_traffic():
    assert plan("alternating") == ((30, 2, 30, 2), (2, 30, 2, 30))


def test_more_databases_alternate_by_halves():
    assert [row[0] for row in plan("alternating", databases=5)] == [30, 2, 30, 2, 30]
    assert [row[1] for row in plan("alternating", databases=5)] == [2, 30, 2, 30, 2]


def test_steady_has_as_many_clients_as_alternating_has_on_average():
    assert plan("steady") == ((16, 16, 16, 16), (16, 16, 16, 16))
    assert sum(map(sum, plan("steady"))) == sum(map(sum, plan("alternating")))


def test_burst_has_all_databases_busy_at_once():
    assert plan("burst", databases=3) == ((2, 30, 2, 30),) * 3


def test_diurnal_days_are_spread():
    first, second = plan("diurnal", periods=8)
    assert first[0] == 30 and first[4] == 2
    assert second[0] == 2 and second[4] == 30
    assert first[:5] == tuple(sorted(first[:5], reverse=True))


@given(
    st.sampled_from(sorted(load_patterns.PATTERNS)),
    st.integers(1, 8),
    st.integers(1, 24),
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
)
def test_every_named_pattern_stays_between_low_and_high(pattern, databases, periods, ends):
    low, high = sorted(ends)
    result = plan(pattern, databases, periods, high, low)
    assert len(result) == databases and all(len(row) == periods for row in result)
    assert all(low <= clients <= high for row in result for clients in row)
    listed = load_patterns.client_plan(load_patterns.format_plan(result), databases=databases, periods=None, high=1, low=1)
    assert listed == result, "what is described can be listed again"


def test_who_is_busy_and_who_is_quiet_is_read_off_a_list():
    assert load_patterns.client_range(plan("5,0,1/0,7,2")) == (7, 1)


def test_listed_clients_may_be_idle():
    assert plan("5, 0,1/0,7,1", periods=3) == ((5, 0, 1), (0, 7, 1))


@pytest.mark.parametrize(
    ("pattern", "reported"),
    [
        ("weekly", "there is no pattern 'weekly'; choose alternating, diurnal"),
        ("1,2", "lists 1 databases, but there are 2"),
        ("1,2/3", "2, 1 periods"),
        ("1,,2/1,1,1", "a number of clients is missing"),
        ("0,1/0,1", "in period 1 no database has a client"),
    ],
)
def test_what_cannot_be_meant_is_refused(pattern, reported):
    with pytest.raises(UsageError, match=reported):
        plan(pattern)


def test_lists_must_agree_with_the_periods():
    with pytest.raises(UsageError, match="lists 2 periods, but --periods is 4"):
        plan("1,2/2,1", periods=4)


@pytest.mark.parametrize(("high", "low"), [(2, 30), (5, 0)])
def test_busy_is_at_least_quiet(high, low):
    with pytest.raises(UsageError, match="at least as many clients"):
        plan("alternating", high=high, low=low)


def test_phases_leave_idle_targets_out():
    result = load_patterns.phases(((3, 0), (0, 4)), ["a", "b"], lambda n: Load(clients=n), ramp=1, seconds=5)
    assert [(phase.name, phase.warmup, phase.seconds) for phase in result] == [("period-1", 1, 5), ("period-2", 1, 5)]
    assert [{target: load.clients for target, load in phase.loads.items()} for phase in result] == [{"a": 3}, {"b": 4}]


def test_connections_of_a_border_are_those_of_both_sides():
    assert load_patterns.max_connections(((30, 2, 30, 2),)) == 32
    assert load_patterns.max_connections(((30, 2), (2, 30))) == 64
    assert load_patterns.max_connections(((7,),)) == 7
