import shlex
from pathlib import Path

import click
import pytest

from pgherd.cli import run_study as running
from pgherd.cli.main import run
from pgherd.cli.study_command import StudyCommand
from pgherd.study.option import declared
from pgherd.study.study import studies, study_of

RUN = {"dry_run", "write_scenario", "yes", "no_report", "as_json", "runs", "metrics_listen", "metrics_token_file", "help_all"}
SHORT_LINES = 25


@pytest.mark.parametrize("name", sorted(studies()))
def test_the_command_line_has_each_declared_option_and_those_of_every_run(name):
    names = {parameter.name for parameter in StudyCommand(study_of(name)).params}
    assert names == {item.name for item in declared(study_of(name).request_model)} | RUN


@pytest.mark.parametrize("name", sorted(studies()))
def test_every_study_takes_a_time_budget_a_user_and_a_dry_run(name):
    names = {parameter.name for parameter in StudyCommand(study_of(name)).params}
    assert {"time_budget", "run_as", "dry_run"} <= names
    assert "dry-run" in study_of(name).common
    assert "time_budget" in study_of(name).options.model_fields


@pytest.mark.parametrize("name", sorted(studies()))
def test_every_option_has_a_short_help(name):
    for parameter in StudyCommand(study_of(name)).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert len(parameter.help.partition("  [default")[0]) <= 70, parameter.name


@pytest.mark.parametrize("name", sorted(studies()))
def test_the_common_options_exist(name):
    study = study_of(name)
    names = {item.name for item in declared(study.request_model)} | RUN
    assert study.common and {option.replace("-", "_") for option in study.common} <= names
    assert {option.replace("-", "_") for option in study.web} <= {
        element.name for element in declared(study.request_model) if element.option.web
    }


@pytest.mark.parametrize("name", [name for name, study in studies().items() if not study.started_by])
def test_help_fits_a_terminal(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= SHORT_LINES


def test_help_shows_common_options_and_help_all_every_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["density", "--help"]) == 0
    short = capsys.readouterr().out
    assert "--databases N,N,…" in short and "--help-all" in short and "--vm-ksm" not in short and "--script my.sql" not in short
    assert "Measured time of each trial.  [default: 9s]\n" in short and "CPU cores per database.\n" in short
    assert run(["density", "--help-all"]) == 0
    full = capsys.readouterr().out
    assert all(f"\n{section}:\n" in full for section in ("Study", "Workload", "Storage", "Cluster", "Run and output"))
    assert "--vm-ksm" in full and "[default: 4; cores/8 below 32 cores]" in " ".join(full.split()) and "--script my.sql" in full


def test_help_shows_defaults_where_they_have_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["density", "--help"]) == 0
    assert "CPU cores per database.  [default: 4; cores/8 below 32 cores]\n" in capsys.readouterr().out


EXAMPLES = [text for study in map(study_of, sorted(studies())) for text, _ in study.examples]


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_of_the_help_is_a_valid_request(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("before.yaml", "after.yaml"):
        Path(name).write_text("study: density\n")
    Path("my.sql").write_text("SELECT 1;\n")
    requests = []

    def launch(study, options, **_):
        requests.append(study_of(study).request_model.model_validate(options))
        return 0

    monkeypatch.setattr(running, "run_study", launch)
    assert run(shlex.split(text)[1:]) == 0 and len(requests) == 1


def test_only_given_options_reach_the_study(monkeypatch):
    called = {}
    monkeypatch.setattr(running, "run_study", lambda study, options, **how: called.update(study=study, options=options, **how) or 3)
    arguments = ["--iodepth", "4", "--no-concurrent", "--volume", "/a", "--volume", "/b", "--tests", "random-read, qd1", "--no-report"]
    assert run(["disk", *arguments, "--runs-dir", "/there", "--write-scenario", "file.yaml"]) == 3
    options = {"iodepth": 4, "concurrent": False, "volume": ("/a", "/b"), "tests": ("random-read", "qd1")}
    how = {"runs": Path("/there"), "dry_run": False, "scenario": Path("file.yaml"), "report": False, "as_json": False}
    assert called == {"study": "disk", "options": options, **how}


def test_a_list_without_words_is_refused(capsys):
    assert run(["disk", "--tests", ", "]) == 2
    assert "', ' is empty" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "offered"), [("density", True), ("exec", True), ("database-size", False), ("compression", False)])
def test_studies_that_run_on_other_hosts_take_a_cluster(name, offered, capsys):
    assert run([name, "--help-all"]) == 0
    assert ("--cluster NAME" in capsys.readouterr().out) is offered
