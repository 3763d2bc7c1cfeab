import json
import os
import shutil

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgherd.cli.main import run
from pgherd.model.errors import PgherdError
from pgherd.store.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def without_samples(runs):
    """Made-up runs have files of samples that hold none."""
    for directory in runs.glob("*/trials/*/samples"):
        shutil.rmtree(directory)


def test_by_default_it_lies_in_the_run_s_directory(runs, name, capsys):
    assert run(["export", "last", "--runs-dir", str(runs)]) == 0
    file = runs / name / "openmetrics.txt"
    assert capsys.readouterr().out.strip() == str(file)
    assert any(family.name == "pgherd_run_transactions" for family in text_string_to_metric_families(file.read_text()))


def test_as_json_it_says_what_it_wrote(runs, name, tmp_path, capsys):
    file = tmp_path / "run.om"
    assert run(["export", name, "--runs-dir", str(runs), "--output", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["run"], document["file"]) == ("pgherd/export/2", name, str(file))
    families = list(text_string_to_metric_families(file.read_text()))
    assert (document["families"], document["samples"]) == (len(families), sum(len(family.samples) for family in families))
    assert document["first"] < document["last"]


def test_a_dash_is_stdout(runs, name, capsys):
    assert run(["export", name, "--runs-dir", str(runs), "--output", "-"]) == 0
    assert capsys.readouterr().out.endswith("# EOF\n")
    assert not (runs / name / "openmetrics.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no run 'nothing'"),
        (["last", "--output", "-", "--json"], "both write to stdout"),
        (["last", "--output", "/nowhere/at/all.om"], "/nowhere/at/all.om cannot be written: No such file or directory"),
        (["last", "--output", "/"], "/ is no regular file"),
    ],
)
def test_what_cannot_be_exported_is_one_message(runs, name, capsys, arguments, message):
    assert run(["export", *arguments, "--runs-dir", str(runs)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and "Traceback" not in errors


def test_a_run_without_trials_has_nothing_to_export(tmp_path, runs, name, capsys):
    empty = RunDirectory.create(tmp_path / "other", "density")
    empty.save(RunDirectory(runs / name).record().model_copy(update={"run": empty.name}))
    assert run(["export", empty.name, "--runs-dir", str(tmp_path / "other")]) == 2
    assert "has no finished trial to export" in capsys.readouterr().err


def test_a_failure_leaves_no_half_of_a_file(runs, name, monkeypatch):
    def fail(*_):
        raise PgherdError("no")

    monkeypatch.setattr("pgherd.export.openmetrics_file.write", fail)
    assert run(["export", name, "--runs-dir", str(runs)]) == 1
    assert not list((runs / name).glob("openmetrics*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_run_of_another_user_is_exported_elsewhere_only(runs, name, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (runs / name / f".openmetrics.txt.{os.getpid()}.tmp").symlink_to(secret)
    os.chown(runs / name, 65534, 65534)
    assert run(["export", name, "--runs-dir", str(runs)]) == 2
    assert "belongs to user 'nobody', and pgherd does not write into it; give --output FILE" in capsys.readouterr().err
    assert run(["export", name, "--runs-dir", str(runs), "--output", str(tmp_path / "run.om")]) == 0
    assert (tmp_path / "run.om").read_text().endswith("# EOF\n") and secret.read_text() == "secret"


def test_output_of_a_driver_is_read_in_its_run_only(runs, name, tmp_path, capsys):
    """A result of a foreign run names any file as a driver's output."""
    directory = RunDirectory(runs / name)
    for result in directory.results():
        file = directory.path / "trials" / result.id / "trial.json"
        document = json.loads(file.read_text())
        for phase in document["phases"]:
            for target in phase["targets"]:
                target["raw"] = ["../../../elsewhere/stderr"]
        file.write_text(json.dumps(document))
    (runs / "elsewhere").mkdir()
    os.mkfifo(runs / "elsewhere/stderr")
    assert run(["export", name, "--runs-dir", str(runs), "--output", "-"]) == 0
