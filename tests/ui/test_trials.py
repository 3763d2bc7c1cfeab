from __future__ import annotations

import pytest

from pgherd.model.errors import UsageError
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.trials import read_trial, trial_line, trial_lines


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_trials_by_id_and_point(directory):
    lines = trial_lines(directory)
    results = directory.results()
    assert [line.id for line in lines] == [result.id for result in results]
    assert [line.point for line in lines] == [f"databases {result.trial.point['databases']}" for result in results]
    assert [line.size for line in lines] == [result.trial.point["databases"] for result in results]
    assert lines[0].words == f"0001: {lines[0].point}"


def test_as_the_store_writes_them(directory, tmp_path):
    result = directory.results()[0]
    other = RunDirectory(tmp_path / "other")
    other.finish_trial(result)
    assert trial_lines(other)[0].point == f"databases {result.trial.point['databases']}"


@pytest.mark.parametrize("text", ["", "{", '{"point": [', "\udcff", '{"trial": {"point": 3}}'])
def test_a_damaged_trial_has_no_point_but_is_there(directory, text):
    file = directory.path / "trials" / "0001" / "trial.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    line = trial_lines(directory)[0]
    assert (line.id, line.point, line.words) == ("0001", "", "0001")
    with pytest.raises(UsageError, match="cannot be read"):
        read_trial(line)


@pytest.mark.parametrize("trial", ["", "1", "../0001", "0001.partial", "9999", "<b>"])
def test_only_a_trial_is_one(directory, trial):
    (directory.path / "trials" / "0001.partial").mkdir()
    with pytest.raises(UsageError, match="no finished trial"):
        trial_line(directory, trial)


def test_reading(directory):
    assert read_trial(trial_line(directory, "0002")) == directory.results()[1]
