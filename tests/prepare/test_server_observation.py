from dataclasses import replace

import pytest

from pgherd.metrics.prometheus import PrometheusError
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.postgres.provider import ServerFacts
from pgherd.prepare import server_observation as servers
from pgherd.prepare.server_observation import describe_prometheus, prometheus_source

FOUND = ExternalDatabaseInfo(dsn="host=h", version="17.2", major=17, database="app", bytes=2**20, scale=5, host="db1")
URL = "http://prom:9090"


def test_without_a_known_process_a_reader_is_told_what_is_not_observed():
    said = servers.describe_cgroup(LocalNode(), FOUND, None)
    assert "not observed" in said and "--server-cgroup" in said
    said = servers.describe_cgroup(LocalNode(), replace(FOUND, pid=1), None)
    assert said.startswith("Its cgroup is not used") and "its process pid:1: " in said


def test_series_are_those_of_the_servers_host_and_container():
    source = prometheus_source(URL, "host=node", FOUND, "container:7f2c1d")
    assert (source.label, source.values) == ("node", "(db1)(:[0-9]+)?")
    assert source.container_id == r"(.*[-:/])?7f2c1d[0-9a-f]*(\.scope)?"
    assert "localhost" in prometheus_source(URL, "host=instance", replace(FOUND, host="/run/postgresql"), None).values


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
        prometheus_source(url, match, FOUND, cgroup)


def test_a_reader_is_told_which_exporters_there_are(monkeypatch):
    source = prometheus_source(URL, "host=instance", FOUND, None)
    monkeypatch.setattr(servers.prometheus, "available", lambda source: {"node_exporter": ["a", "b"], "cAdvisor": ["c"]})
    said = describe_prometheus(source)
    assert "series 1 of cAdvisor, 2 of node_exporter. Its container is unknown without --server-cgroup." in said
    monkeypatch.setattr(servers.prometheus, "available", lambda source: {})
    with pytest.raises(UsageError, match="has no recent series .* choose the label with --prometheus-match"):
        describe_prometheus(source)

    def refused(source):
        raise PrometheusError("Prometheus at http://prom:9090 does not answer: refused")

    monkeypatch.setattr(servers.prometheus, "available", refused)
    with pytest.raises(UsageError, match="--prometheus: Prometheus at http://prom:9090 does not answer"):
        describe_prometheus(source)


def test_what_is_hidden_is_told_once_with_the_grant_that_helps():
    facts = ServerFacts(role="loader", hidden=("waits and queries of other users",), replicas=2, roles=frozenset({"rds_superuser"}))
    provider, replicas, hidden = servers.describe_facts(replace(FOUND, facts=facts))
    assert provider.startswith("The server is one of Amazon RDS. Unknown there: ")
    assert replicas == "Warning: 2 replicas receive WAL from this server."
    assert hidden == 'Hidden from role loader: waits and queries of other users. As a superuser: GRANT pg_monitor TO "loader";'
    assert servers.describe_facts(FOUND) == []
