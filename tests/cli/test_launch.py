import pytest

from pgherd.cli.launch import launch, resume
from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.run import Surroundings
from pgherd.store.run_directory import RunDirectory


def test_an_unknown_study_starts_nothing(tmp_path):
    with pytest.raises(UsageError, match="no study 'nothing'"):
        launch("nothing", {}, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_only_reported_again(runs, name, capsys):
    directory = RunDirectory(runs / name)
    record = directory.record()
    directory.save(record.model_copy(update={"surroundings": Surroundings(runtime="process", cores=1, memory=2**30)}))
    assert resume(directory, report=False, as_json=False) == 0
    assert record.analysis.answer.split()[0] in capsys.readouterr().out


def test_a_run_that_is_alive_is_not_resumed(runs, name, monkeypatch):
    directory = RunDirectory(runs / name)
    surroundings = Surroundings(runtime="process", cores=1, memory=2**30)
    options = {"cores": 1, "memory": 2**30, "vcpus": 1, "pg_bin": "/pg", "pg_version": "18.1", "points": [1]}
    directory.save(directory.record().model_copy(update={"surroundings": surroundings, "state": "running", "options": options}))
    with directory.locked(), pytest.raises(PgherdError, match="being executed by another"):
        resume(RunDirectory(directory.path), report=False, as_json=False)
