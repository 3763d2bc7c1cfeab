from dataclasses import replace

import pytest

from pgherd.host.server_cgroup import ServerCgroup
from pgherd.metrics.prometheus import PrometheusError
from pgherd.model.errors import UsageError
from pgherd.model.fleet import ListedServer
from pgherd.node.local import LocalNode
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.provider import ProviderFacts
from pgherd.prepare import server_observation as servers
from pgherd.prepare.server_observation import describe_prometheus, prometheus_source

FOUND = ExternalDatabaseInfo(dsn="host=h", version="17.2", major=17, database="app", bytes=2**20, scale=5, host="db1")
URL = "http://prom:9090"


def theirs(container=None):
    """Return the server of --dsn."""
    return ListedServer.model_construct(name="", container=container)


THEIRS = theirs()


def test_without_a_known_process_a_reader_is_told_what_is_not_observed():
    (said,) = servers.describe_cgroups(LocalNode(), [(THEIRS, FOUND)])
    assert "not observed" in said and "--server-cgroup" in said
    (said,) = servers.describe_cgroups(LocalNode(), [(THEIRS, replace(FOUND, pid=1))])
    assert said.startswith("Its cgroup is not used") and "its process pid:1: " in said


def test_series_are_those_of_the_servers_host_and_container():
    source = prometheus_source(URL, "host=node", theirs("container:7f2c1d"), FOUND)
    assert (source.label, source.values) == ("node", "(db1)(:[0-9]+)?")
    assert source.container_id == r"(.*[-:/])?7f2c1d[0-9a-f]*(\.scope)?"
    assert "localhost" in prometheus_source(URL, "host=instance", THEIRS, replace(FOUND, host="/run/postgresql", pid=7)).values
    for host in ("127.0.0.1", "localhost", "/tmp/forwarded"):
        with pytest.raises(UsageError, match=f"--dsn: it is reached at {host}, but nothing shows that it runs on this host"):
            prometheus_source(URL, "host=instance", THEIRS, replace(FOUND, host=host))
    listed = ListedServer(name="a", labels={"host": "rack1"})
    assert prometheus_source(URL, "host=instance", listed, FOUND).values == "(rack1)(:[0-9]+)?", "its label, not its address"


@pytest.mark.parametrize(
    ("url", "match", "cgroup", "message"),
    [
        (URL, "zone=instance", None, "--prometheus-match zone=instance: write it as host=LABEL"),
        (URL, "instance", None, "write it as host=LABEL"),
        (URL, "host=a b", None, "--prometheus-match host=a b"),
        ("http://me:x@prom", "host=instance", None, "--prometheus: the address contains a user or a password"),
        (URL, "host=instance", "pid:1", "--server-cgroup pid:1: with --prometheus"),
    ],
)
def test_what_selects_no_series_is_refused(url, match, cgroup, message):
    with pytest.raises(UsageError, match=message):
        prometheus_source(url, match, theirs(cgroup), FOUND)


def test_a_reader_is_told_which_exporters_there_are(monkeypatch):
    source = prometheus_source(URL, "host=instance", THEIRS, FOUND)
    monkeypatch.setattr(servers.prometheus, "available", lambda source: {"node_exporter": ["a", "b"], "cAdvisor": ["c"]})
    (said,) = describe_prometheus([(THEIRS, FOUND)], [source])
    assert "series 1 of cAdvisor, 2 of node_exporter. Its container is unknown without --server-cgroup." in said
    monkeypatch.setattr(servers.prometheus, "available", lambda source: {})
    with pytest.raises(UsageError, match="has no recent series .* choose the label with --prometheus-match"):
        describe_prometheus([(THEIRS, FOUND)], [source])

    def refused(source):
        raise PrometheusError("Prometheus at http://prom:9090 does not answer: refused")

    monkeypatch.setattr(servers.prometheus, "available", refused)
    with pytest.raises(UsageError, match="--prometheus: Prometheus at http://prom:9090 does not answer"):
        describe_prometheus([(THEIRS, FOUND)], [source])


def test_what_is_hidden_is_told_once_with_the_grant_that_helps():
    facts = ProviderFacts(role="loader", hidden=("waits and queries of other users",), roles=frozenset({"rds_superuser"}))
    provider, hidden = servers.describe_facts([(THEIRS, replace(FOUND, facts=facts))])
    assert provider.startswith("The server is one of Amazon RDS. Unknown there: ")
    assert hidden == 'Hidden from role loader: waits and queries of other users. As a superuser: GRANT pg_monitor TO "loader";'
    assert servers.describe_facts([(THEIRS, FOUND)]) == []


def test_of_a_list_a_sentence_is_told_once_with_the_servers_names():
    looked = [(ListedServer(name=name), FOUND) for name in ("a", "b")]
    (said,) = servers.describe_cgroups(LocalNode(), looked)
    assert said.startswith("a, b: No process here") and "its container in the list" in said


def test_a_cgroup_of_two_listed_servers_is_neithers(monkeypatch):
    group = ServerCgroup("/pods/both", {"v2": "/sys/fs/cgroup/pods/both"}, cores=2)
    monkeypatch.setattr(servers.server_cgroup, "resolve", lambda node, text, option: group)
    named = [(ListedServer(name=name, container="/pods/both"), FOUND) for name in ("a", "b")]
    with pytest.raises(UsageError, match="server a: container /pods/both: it contains server b too"):
        servers.describe_cgroups(LocalNode(), named)
    first, second = servers.describe_cgroups(LocalNode(), [(ListedServer(name=name), replace(FOUND, pid=7)) for name in ("a", "b")])
    assert first.startswith("a: Its cgroup /pods/both is not used") and "it contains server b too" in first
    assert second.startswith("b: Its cgroup /pods/both is not used") and "it contains server a too" in second
