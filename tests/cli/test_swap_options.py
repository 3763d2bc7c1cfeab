import click
from click.testing import CliRunner

from pgherd.cli.swap_options import swap_options
from pgherd.study.swap_options import SwapRequest


def _verb():
    given = {}

    def command(**options):
        given.update(options)

    for option in swap_options(kind="none", size="1GB"):
        command = option(command)
    return click.command("verb")(command), given


def test_every_option_is_a_field_of_the_request():
    verb, given = _verb()
    words = ["--swap", "zram", "--swap-size", "1GB", "--swap-dir", "/srv", "--swap-algorithm", "lz4", "--swap-memory", "64MB"]
    assert CliRunner().invoke(verb, words).exit_code == 0
    assert set(given) == set(SwapRequest.model_fields)
    assert SwapRequest(**given).swap_algorithm == "lz4"


def test_a_kind_that_is_none_is_refused_with_those_that_are():
    verb, _ = _verb()
    ended = CliRunner().invoke(verb, ["--swap", "disk"])
    assert ended.exit_code == 2 and "zram" in ended.output
