from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pgherd.cli import compression, database_size, disk, network
from pgherd.cli import exec as exec_
from pgherd.cli import launch as launching
from pgherd.cli.study_options import COMPARED, INSTALLED, MEASURED, RUN, given_options, listed, options, run_study
from pgherd.study.registry import study_of

WORDS = {"program": "fio", "repeats": "How often.", "seconds": "6s", "ramp": "2s", "shown": "what would happen"}


def _command(*parts, **changes):
    @click.command("study")
    @options(parts, **{**WORDS, **changes})
    def command(**given):
        click.echo(sorted(given_options(given)))

    return command


def test_words_stand_in_the_help():
    said = " ".join(CliRunner().invoke(_command(*MEASURED, *RUN), ["--help"]).output.split())
    assert "Show what would happen; do nothing." in said and "[default: 6s]" in said and "{" not in said


def test_what_is_left_out_is_gone_and_only_there():
    first, second = _command(*MEASURED), _command(*MEASURED, without=frozenset({"seed"}))
    assert {one.name for one in first.params} - {one.name for one in second.params} == {"seed"}


def test_options_stand_in_their_order():
    names = [one.name for one in _command(*COMPARED, *INSTALLED, such="", blocks="", until="", equivalence="2%").params]
    assert names == ["metric", "blocks", "precision", "equivalence", "pg_bin", "pg_version", "run_as"]


def test_only_what_was_said_is_passed_on():
    assert given_options({"a": None, "b": (), "seed": 0, "flag": False}) == {"seed": 0, "flag": False}


def test_a_list_of_words_has_no_empty_ones():
    assert listed(None, None, "a, b,,c ") == ("a", "b", "c") and listed(None, None, None) is None
    with pytest.raises(click.BadParameter, match="', ' names nothing"):
        listed(None, None, ", ")


def test_a_verb_launches_its_study_with_what_was_said(monkeypatch):
    called = {}
    monkeypatch.setattr(launching, "launch", lambda study, options, **how: called.update(study=study, options=options, **how) or 3)

    @click.command("study")
    @options((click.option("--depth", type=int), *MEASURED, *RUN), **WORDS)
    def command(**given):
        click.echo(f"ended with {run_study('disk', given, arms=['a'])}")

    words = ["--depth", "4", "--runs", "/there", "--no-report", "--write-scenario", "file.yaml"]
    assert CliRunner().invoke(command, words).output == "ended with 3\n"
    how = {"runs": Path("/there"), "dry_run": False, "scenario": Path("file.yaml"), "report": False, "as_json": False}
    assert called == {"study": "disk", "options": {"depth": 4, "arms": ["a"]}, **how}


def test_every_field_of_a_request_has_its_option():
    for verb in (disk, network, database_size, compression, exec_):
        fields = set(study_of(verb.command.name).request_model.model_fields) - {"over", "placement"}  # of containers on several hosts
        assert fields <= {one.name for one in verb.command.params}, verb.command.name
