from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import click
import numpy
import pytest
from click.testing import CliRunner

from pgherd.cli.output import answer_console, json_option, print_document, progress_console, runs_option
from pgherd.model.base import Model


class Thing(Model):
    size: float


def printed(document, capsys):
    print_document(document)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, None),
        (True, True),
        (3, 3),
        ("é", "é"),
        (float("nan"), None),
        (float("-inf"), None),
        ((1, [2.5]), [1, [2.5]]),
        (Path("/x"), "/x"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (Thing(size=1.5), {"size": 1.5}),
        ({"a": Thing.model_construct(size=float("inf"))}, {"a": {"size": None}}),
        (numpy.float64(1.5), 1.5),
        (numpy.float64("nan"), None),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.array([1.0, numpy.nan]), [1.0, None]),
    ],
)
def test_document_holds_what_json_can(value, expected, capsys):
    assert printed({"value": value}, capsys) == {"value": expected}


def test_document_refuses_what_it_cannot_write():
    with pytest.raises(TypeError, match="object"):
        print_document({"value": object()})


@click.command()
@json_option
@runs_option
def verb(as_json, runs):
    print("printed")
    answer_console().print("answer")
    progress_console().print("progress")
    if as_json:
        print_document({"runs": runs})


def test_without_json_the_answer_is_on_stdout():
    result = CliRunner().invoke(verb, [])
    assert result.stdout == "printed\nanswer\n"
    assert result.stderr == "progress\n"


def test_with_json_only_the_document_is_on_stdout():
    result = CliRunner().invoke(verb, ["--json"], env={"PGHERD_RUNS": None})
    assert json.loads(result.stdout) == {"runs": "pgherd-runs"}
    assert result.stderr == "printed\nanswer\nprogress\n"


def test_runs_directory():
    assert json.loads(CliRunner().invoke(verb, ["--json", "--runs-dir", "a"], env={"PGHERD_RUNS": "b"}).stdout) == {"runs": "a"}
    assert json.loads(CliRunner().invoke(verb, ["--json"], env={"PGHERD_RUNS": "b"}).stdout) == {"runs": "b"}
    result = CliRunner().invoke(verb, ["--runs-dir", __file__])
    assert result.exit_code == 2 and "is a file" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_default_directory_of_another_user_is_not_followed(tmp_path, monkeypatch):
    """As git refuses a repository of another user (CVE-2022-24765)."""
    command = click.command()(runs_option(lambda runs: click.echo(str(runs))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PGHERD_RUNS", raising=False)

    def call(*arguments, **environment):
        return CliRunner().invoke(command, arguments, env=environment)

    assert call().output == "pgherd-runs\n"
    (tmp_path / "pgherd-runs").mkdir()
    assert call().output == "pgherd-runs\n"
    os.chown(tmp_path / "pgherd-runs", 65534, 65534)
    assert str(call().exception) == "./pgherd-runs belongs to user 'nobody'; to use it, give --runs-dir pgherd-runs"
    assert call("--runs-dir", "pgherd-runs").output == call(PGHERD_RUNS="pgherd-runs").output == "pgherd-runs\n"
    assert call(SUDO_UID="65534").output == "pgherd-runs\n"
    (tmp_path / "pgherd-runs").rename(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    (tmp_path / "pgherd-runs").symlink_to("ours")
    assert call().output == "pgherd-runs\n"
    os.chown(tmp_path / "pgherd-runs", 65534, 65534, follow_symlinks=False)
    assert "belongs to user 'nobody'" in str(call().exception)
