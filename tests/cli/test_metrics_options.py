import click
import pytest
from click.testing import CliRunner

from pgherd.cli import metrics_options
from pgherd.cli.main import VERBS, cli, run
from pgherd.cli.metrics_options import endpoint, serving, show
from pgherd.export.server import ListenAddress, MetricsServer
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunRecord

RECORD = RunRecord(
    run="r1",
    study="density",
    options={},
    started=1.0,
    pgherd="1.0",
    hosts={"local": HostFacts(hostname="db7", kernel="6.1", cores=2, logical_cpus=2, memory=2**34)},
)


def call(function, *text):
    """Call a function inside a verb that has the options."""
    collected = []

    @click.command()
    @metrics_options.metrics_options
    def verb():
        collected.append(function())

    result = CliRunner().invoke(verb, text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return collected[0]


def test_every_verb_that_executes_a_run_has_them():
    verbs = [*VERBS["Studies"], "resume"]
    for verb in verbs:
        command = cli.get_command(click.Context(cli), verb)
        assert {"metrics_listen", "metrics_token_file"} <= {parameter.name for parameter in command.params}, verb


def test_without_them_nothing_is_served():
    assert call(endpoint) is None
    assert endpoint() is None, "nor outside of any command"

    def body():
        notes = []
        with serving(notes.append):
            show(None, RECORD)
        return notes

    assert call(body) == []


def test_a_token_alone_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="--metrics-token-file requires --metrics-listen"):
        call(endpoint, "--metrics-token-file", str(tmp_path / "token"))


def test_what_is_wrong_is_said_before_anything_is_done(tmp_path, capsys):
    for text, reason in (("0.0.0.0:9187", "give --metrics-token-file FILE"), ("x", "is not a port")):
        assert run(["density", "--metrics-listen", text, "--runs-dir", str(tmp_path / "runs")]) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_is_served_and_the_port_is_free_afterwards(tmp_path):
    reported = []

    def body():
        with serving(reported.append):
            show(tmp_path, RECORD)
            url = reported[0].rpartition(" ")[2]
            import urllib.request

            return url, urllib.request.urlopen(url, timeout=10).read().decode()

    url, text = call(body, "--metrics-listen", "0")
    assert 'pgherd_run_info{cores="2",host="db7"' in text
    assert len(reported) == 1
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    MetricsServer(ListenAddress("127.0.0.1", port)).close()


def test_the_port_is_free_after_a_failed_run():
    def body():
        with serving(lambda text: None):
            raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        call(body, "--metrics-listen", "0")
