from pgherd.cli.main import run
from pgherd.store.run_directory import RunDirectory


def test_a_run_that_is_not_there(tmp_path, capsys):
    assert run(["resume", "nothing", "--runs-dir", str(tmp_path)]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_run_that_does_not_say_what_it_needs(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "interrupted"}))
    assert run(["resume", name, "--runs-dir", str(runs)]) == 2
    assert "cannot be resumed: its run.json has no 'environment'" in capsys.readouterr().err
