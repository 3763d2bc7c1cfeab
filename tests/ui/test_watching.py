from __future__ import annotations

import pytest

from pgherd.model.errors import RunDirectoryError
from pgherd.store.run_directory import RunDirectory
from pgherd.ui import watching
from pgherd.ui.watching import LiveRuns


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_many_pages_are_one_look(directory, monkeypatch):
    seen = LiveRuns()
    first = seen.look(directory)
    assert first.present.run == directory.name and first.cpu is None and first.throughput is None
    monkeypatch.setattr(watching, "_AT_MOST_EVERY", 1e9)
    assert seen.look(RunDirectory(directory.path)) is first
    monkeypatch.setattr(watching, "_AT_MOST_EVERY", 0.0)
    assert seen.look(directory) is not first


def test_what_nobody_watches_is_forgotten(directory, runs, monkeypatch):
    seen = LiveRuns()
    seen.look(directory)
    monkeypatch.setattr(watching, "_FORGOTTEN_AFTER", -1.0)
    seen.look(RunDirectory(sorted(runs.iterdir())[1]))
    assert list(seen._runs) == [str(sorted(runs.iterdir())[1])]


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunDirectoryError):
        LiveRuns().look(RunDirectory(tmp_path))
