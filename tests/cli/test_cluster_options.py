import click
import pytest
from click.testing import CliRunner

from pgherd.cli.cluster_options import cluster_options
from pgherd.cli.main import run
from pgherd.cli.study_options import given_options


def test_what_is_not_given_is_not_passed_on():
    seen = []

    @click.command()
    @cluster_options
    def verb(**given):
        seen.append(given_options(given))

    assert CliRunner().invoke(verb, []).exit_code == 0
    assert CliRunner().invoke(verb, ["--cluster", "mine", "--placement", "pack", "--on-lost-host", "stop"]).exit_code == 0
    assert CliRunner().invoke(verb, ["--on-lost-host", "cry"]).exit_code == 2
    assert seen == [{}, {"cluster": "mine", "placement": "pack", "on_lost_host": "stop"}]


@pytest.mark.parametrize(
    ("verb", "offered"),
    [
        *((verb, True) for verb in ("density", "scaling", "compare", "io-profile", "hugepages", "working-set", "consolidation", "exec")),
        *((verb, False) for verb in ("database-size", "compression")),
    ],
)
def test_studies_that_run_on_other_hosts_offer_it(verb, offered, capsys):
    assert run([verb, "--help"]) == 0
    assert ("--cluster" in capsys.readouterr().out) is offered
