import click
from click.testing import CliRunner

from pgherd.cli import compression, disk, network, sizes
from pgherd.cli import exec as exec_
from pgherd.cli.study_options import COMPARED, INSTALLED, MEASURED, RUN, given_options, listed, options
from pgherd.runner.catalogue import request_of

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


def test_every_field_of_a_request_has_its_option():
    for verb in (disk, network, sizes, compression, exec_):
        fields = set(request_of(verb.command.name).model_fields) - {"over", "placement"}  # of containers on several hosts
        assert fields <= {one.name for one in verb.command.params}, verb.command.name
