import click
from click.testing import CliRunner

from pgherd.cli.database_options import GUEST_MEMORY_POLICIES, WORKLOADS, database_options
from pgherd.cli.study_options import given_options
from pgherd.model.deployment import GuestMemoryPolicy
from pgherd.study.database_options import BuiltinWorkload, DatabaseRequest

WORDS = {"vcpus": "all", "memory": "none", "repeats": "How often.", "seconds": "9s", "ramp": "1s", "budget": "4m"}


def _command(**changes):
    own = (click.option("--clients", type=int, help="How many."),)

    @click.command("study")
    @database_options(own, **changes, **WORDS)
    def command(**given):
        click.echo(sorted(given_options(given)))

    return command


def test_every_field_of_the_request_has_its_option():
    options = {parameter.name for parameter in _command().params}
    assert set(DatabaseRequest.model_fields) - {"over"} <= options  # pgherd fills that in
    assert {"clients", "dry_run", "write_scenario", "no_report", "runs", "as_json"} <= options
    assert set(WORKLOADS) == set(BuiltinWorkload.__args__)
    assert set(GUEST_MEMORY_POLICIES) == set(GuestMemoryPolicy.__args__)


def test_what_differs_between_studies_stands_in_the_help():
    said = " ".join(CliRunner().invoke(_command(), ["--help"]).output.split())
    assert "given to each database. [default: all]" in said and "How often." in said and "{" not in said


def test_options_of_two_verbs_do_not_mix():
    first, second = _command(), _command(without=frozenset({"rate"}))
    assert "rate" in {parameter.name for parameter in first.params} and "rate" not in {parameter.name for parameter in second.params}


def test_only_what_was_said_is_passed_on():
    assert given_options({"vcpus": None, "set": (), "seed": 0, "cores": 1.0}) == {"seed": 0, "cores": 1.0}
