import pytest

from pgherd.model.load import Load, Phase, Script


def test_idle_is_the_absence_of_a_load():
    assert Phase(loads={"local/c1/pg/bench": Load(driver="idle")}).loads == {}


@pytest.mark.parametrize(
    ("sources", "read_only"),
    [
        (["builtin:select-only"], True),
        (["builtin:tpcb-like"], False),
        (["builtin:select-only", "builtin:simple-update"], False),
        (["/somewhere/reads.sql"], False),  # nobody knows what a script of the user's does
    ],
)
def test_only_what_is_known_to_read_counts_as_read_only(sources, read_only):
    assert Load(scripts=tuple(Script(source=source) for source in sources)).read_only is read_only


def test_how_long_a_phase_lasts_that_ends_with_its_drivers_is_not_planned():
    assert Phase(ramp=1, seconds=9).planned() == 10 and Phase(ramp=1, seconds=600, until="drivers").planned() == 1
