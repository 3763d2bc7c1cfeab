import io

import pytest
from rich.console import Console

from pgherd.cli.trial import MOST_PHASES, point_words, readings, show_trial
from pgherd.model.result import Turn
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.database_size.options import SizesOptions
from pgherd.studies.database_size.study import STUDY


def shown(result, path="/runs/r/trials/0001"):
    out = io.StringIO()
    show_trial(Console(file=out, width=200), result, path, "r")
    return out.getvalue()


@pytest.fixture
def result(runs, name):
    return RunDirectory(runs / name).results()[0]


def test_targets_verdicts_and_files_are_shown(result):
    text = shown(result)
    for target in result.phases[0].targets:
        assert target.target in text
    for verdict in result.verdicts:
        assert verdict.check in text
    assert "Raw files: /runs/r/trials/0001" in text
    assert f"pgherd show r {int(result.id)} --commands > repeat.sh; sh repeat.sh" in text


def test_what_took_turns_says_of_what_its_rates_are(result):
    (phase,) = result.phases
    assert "turns" not in shown(result)
    turns = [Turn(begun=phase.start + i, ended=phase.start + i + 0.25) for i in range(4)]
    targets = [target.model_copy(update={"turns": turns}) for target in phase.targets]
    own = shown(result.model_copy(update={"phases": [phase.model_copy(update={"targets": targets})]}))
    assert f"Loads took turns, 4 each at most, {1 / phase.seconds:.0%} of the period: tps is per second of a load's own turns" in own


def test_each_of_a_soaks_windows_is_one_line(result):
    (phase,) = result.phases
    windows = [phase.model_copy(update={"phase": f"w{number:04d}"}) for number in range(MOST_PHASES + 1)]
    text = shown(result.model_copy(update={"phases": windows}))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("w0")] == [window.phase for window in windows]
    assert f"{phase.throughput:,.0f}" in text and phase.targets[0].target not in text
    assert phase.targets[0].target in shown(result.model_copy(update={"phases": windows[:MOST_PHASES]}))


def test_a_failed_trial_says_why_and_is_not_to_be_repeated(result):
    text = shown(result.model_copy(update={"error": "a [server] died", "phases": [], "verdicts": []}))
    assert "It could not be finished: a [server] died" in text and "--commands" not in text


def test_a_probe_is_shown_by_its_readings(result):
    (trial,) = STUDY.propose(SizesOptions(pg_bin="/b", pg_version="18.6", scales=(10,)), []).trials
    text = shown(result.model_copy(update={"trial": trial, "phases": [], "verdicts": [], "probe": {"database_bytes": 157 * 2**20}}))
    assert "Probe 'database-size': database 157 MB." in text


def test_readings_are_written_in_their_unit():
    assert readings({"database_bytes": 1536.0, "free_space_bytes": 2**30, "ratio": 2.13}) == "database 1.5 kB, free space 1 GB, ratio 2.13"


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"databases": 1}, "1 database"),
        ({"databases": 8}, "8 databases"),
        ({"scale": 10}, "scale 10"),
        ({"variant": "base again", "databases": 2}, "base again, 2 databases"),
    ],
)
def test_a_point_is_in_words(result, point, words):
    assert point_words(result.trial.model_copy(update={"point": point})) == words


def test_more_readings_than_a_line_takes_are_counted():
    from pgherd.cli.trial import MOST_READINGS, readings

    assert readings({f"part{number}_bytes": 1.0 for number in range(MOST_READINGS)}).count(",") == MOST_READINGS - 1
    assert readings({f"part{number}_bytes": 1.0 for number in range(MOST_READINGS + 1)}) == f"{MOST_READINGS + 1} readings"
