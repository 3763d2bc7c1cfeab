from __future__ import annotations

import datetime
import json
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
    "value, wanted",
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
        ({"a": Thing(size=float("inf"))}, {"a": {"size": None}}),
        (numpy.float64(1.5), 1.5),
        (numpy.float64("nan"), None),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.array([1.0, numpy.nan]), [1.0, None]),
    ],
)
def test_document_holds_what_json_can(value, wanted, capsys):
    assert printed({"value": value}, capsys) == {"value": wanted}


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
