from __future__ import annotations

import pytest

from pgherd.model.errors import RunDirectoryError
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.run_cache import RunCache


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_read_once_while_nothing_changes(directory):
    reader = RunCache()
    whole = reader.read(directory)
    assert whole.name == directory.name and len(whole.results) == len(directory.results())
    assert reader.read(RunDirectory(directory.path)) is whole


def test_a_new_trial_is_seen(directory):
    reader = RunCache()
    before = reader.read(directory)
    directory.finish_trial(before.results[0].model_copy(update={"id": "0999"}))
    assert len(reader.read(directory).results) == len(before.results) + 1


def test_few_are_kept(directory, tmp_path):
    import shutil

    reader = RunCache()
    first = reader.read(directory)
    for number in range(9):
        reader.read(RunDirectory(shutil.copytree(directory.path, tmp_path / f"copy{number}")))
    assert reader.read(directory) is not first


def test_what_cannot_be_read_is_a_message(tmp_path):
    with pytest.raises(RunDirectoryError):
        RunCache().read(RunDirectory(tmp_path))
