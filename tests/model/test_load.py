import pytest

from pgherd.model.load import LatencyObjective, Load, Phase, Script, TimeSlicing


def test_idle_is_the_absence_of_a_load():
    assert Phase(loads={"local/c1/pg/bench": Load(driver="idle")}).loads == {}


@pytest.mark.parametrize(
    ("sources", "read_only"),
    [
        (["builtin:select-only"], True),
        (["builtin:tpcb-like"], False),
        (["builtin:select-only", "builtin:simple-update"], False),
        (["/somewhere/reads.sql"], False),  # the effect of a user's script is unknown
    ],
)
def test_only_what_is_known_to_read_counts_as_read_only(sources, read_only):
    assert Load(scripts=tuple(Script(source=source) for source in sources)).read_only is read_only


def test_how_long_a_phase_lasts_that_ends_with_its_drivers_is_not_planned():
    assert Phase(warmup=1, seconds=9).planned() == 10 and Phase(warmup=1, seconds=600, until="drivers").planned() == 1


@pytest.mark.parametrize(("percentile", "late"), [(80, 400), (90, 200), (95, 100), (99, 20), (99.9, 2)])
def test_exactly_the_promised_share_is_allowed(percentile, late):
    allowed = LatencyObjective(percentile=percentile, limit_ms=10).allowed
    assert late / 2000 <= allowed < (late + 1) / 2000 and int(allowed * 2000) == late


ONE, TWO = "local/one/pg/bench", "local/two/pg/bench"


def test_turns_are_of_containers():
    turns = TimeSlicing(of={"a": "one", "b": "two"}, seconds=0.3, counted=0.1)
    assert turns.targets("b", [ONE, TWO, "local/two/pg/other"]) == (TWO, "local/two/pg/other")
    assert Phase(loads={ONE: Load(), TWO: Load()}, slices=turns).slices == turns
    assert Phase(loads={}, slices=turns).loads == {}, "a host that carries neither"


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ({ONE: Load(), "local/three/pg/bench": Load()}, "local/three/pg/bench without a time slice. Containers with one: one, two"),
        ({ONE: Load(), "local": Load(driver="command")}, "local without a time slice"),
        ({ONE: Load(rate=5), TWO: Load()}, "only pgbench without a rate can be stopped"),
        ({ONE: Load(driver="fio"), TWO: Load()}, "only pgbench without a rate can be stopped"),
    ],
)
def test_what_cannot_take_turns_is_refused(loads, reason):
    with pytest.raises(ValueError, match=reason):
        Phase(loads=loads, slices=TimeSlicing(of={"a": "one", "b": "two"}, seconds=0.3, counted=0.1))


def test_no_more_of_a_turn_counts_than_there_is():
    with pytest.raises(ValueError, match="counted time of 0.2 s exceeds the slice of 0.1 s"):
        TimeSlicing(of={"a": "one", "b": "two"}, seconds=0.1, counted=0.2)
