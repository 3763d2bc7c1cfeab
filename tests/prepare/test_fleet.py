"""Lists of existing servers: what is read, what is refused in one sentence, and what is told before they are loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgherd.model.errors import UsageError
from pgherd.node import secrets
from pgherd.postgres.external_connections import Pooler
from pgherd.postgres.external_server import ExternalDatabaseInfo, ServerActivity
from pgherd.prepare import fleet

TWO = """
servers:
  - name: alpha
    dsn: postgresql://me:s3cret-a@db1/app
    labels: {host: rack1}
    container: container:7f2c1d
    capacity: 4
    price: 12.5
  - {name: beta, service: second, direct: host=db2 password=s3cret-b}
"""
INFO = ExternalDatabaseInfo(dsn="host=h", version="17.2", major=17, database="app", bytes=1, scale=5, host="h")


@pytest.fixture
def listed(tmp_path):
    def write(text):
        path = tmp_path / "fleet.yaml"
        path.write_text(text)
        return path

    return write


def test_a_list_is_read_and_its_passwords_stay_here(listed):
    alpha, beta = fleet.read_servers(listed(TWO))
    assert (alpha.name, alpha.dsn, alpha.capacity, alpha.price) == ("alpha", "user=me dbname=app host=db1", 4, 12.5)
    assert (beta.name, beta.dsn, beta.labels) == ("beta", "service=second", {})
    assert beta.direct == "host=db2" and secrets.kept("host=db2") == "s3cret-b"
    assert secrets.kept(alpha.dsn) == "s3cret-a" and "s3cret" not in alpha.model_dump_json()
    found = fleet.found(alpha, INFO), fleet.found(beta, INFO)
    assert [server.host for server in found] == ["rack1", "h"], "its label, otherwise its address"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers: [", r"line 1: this is not YAML"),
        ("[]", "a list of servers is a mapping with 'servers', but this is a list"),
        ("servers: []", "'servers' is a list with at least one server"),
        ("hosts: []\nservers: [{name: a, dsn: host=h}]", "'hosts' is not known"),
        ("servers: [alpha]", "server number 1 is a mapping .* but it is str"),
        ("servers: [{dsn: host=h}]", "server number 1: 'name' is missing"),
        ("servers: [{name: a}]", "server 'a' has either 'dsn' or 'service', but none is given"),
        ('servers: [{name: a, dsn: " "}]', "server 'a' has either 'dsn' or 'service', but none is given"),
        ('servers: [{name: a, dsn: host=h, direct: ""}]', "server 'a': 'direct' is empty"),
        ("servers: [{name: a, dsn: password=s3cret, service: s}]", "server 'a' has either 'dsn' or 'service', but both are given"),
        ("servers: [{name: a, dsn: host=h, capacity: -1}]", "server 'a': 'capacity': .*greater than 0, but it is -1"),
        ("servers: [{name: a, dsn: host=h, password: s3cret}]", "server 'a': 'password' is not an option"),
        ("servers: [{name: a, dsn: nonsense s3cret}]", "server 'a' .*this is not a DSN"),
        ("servers: [{name: a, dsn: [password=s3cret]}]", "server 'a': 'dsn': "),
        ("servers: [{name: a, dsn: host=h sslpassword=s3cret}]", "server 'a': sslpassword cannot be given in a DSN"),
        ("servers: [{name: A b, dsn: host=h}]", "server 'A b': 'name': string should match"),
        ("servers: [{name: a, dsn: host=h}, {name: a, dsn: host=i}]", "server 'a' has the name of server 'a'"),
        ("servers: [{name: a, dsn: host=h password=s3cret}, {name: b, dsn: host=h}]", r"'b' has the DSN of server 'a' \(host=h\)"),
        ("servers: [{name: a, dsn: &x host=h}, {name: b, dsn: *x}]", "aliases"),
    ],
)
def test_a_bad_list_is_one_sentence_with_the_servers_name(listed, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        fleet.read_servers(listed(text))
    assert "\n" not in str(caught.value) and "password=s3cret" not in str(caught.value)


def test_which_servers_a_request_names(listed):
    path = str(listed(TWO))
    assert fleet.requested_servers((), None, None, several=True) == ()
    assert [one.dsn for one in fleet.requested_servers(("postgresql://h",), None, None, several=False)] == ["host=h"]
    assert [one.name for one in fleet.requested_servers((), path, None, several=True)] == ["alpha", "beta"]
    assert [one.name for one in fleet.requested_servers((), path, "beta", several=False)] == ["beta"]
    for words, message in (
        ((("host=h",), path, None), "both name servers"),
        (((), None, "beta"), "give the list with --servers"),
        (((), path, "gamma"), "lists alpha, beta; name one of these"),
        (((), path, None), "lists 2 servers, but this loads one; choose it with --server NAME: alpha, beta"),
        (((), path + "x", None), "No such file"),
        ((("host=h", "host=i"), None, None), "--dsn is given 2 times, but this loads one server; give it once"),
    ):
        with pytest.raises(UsageError, match=message):
            fleet.requested_servers(*words, several=False)
    (one,) = fleet.requested_servers(("host=h",), None, None, several=False, cgroup="pid:7")
    assert one.container == "pid:7"
    with pytest.raises(UsageError, match="--server-cgroup pid:7 does not go with --servers .*: name each server's cgroup .* 'container'"):
        fleet.requested_servers((), path, "beta", several=False, cgroup="pid:7")
    two = fleet.requested_servers(("postgresql://h", "host=i"), None, None, several=True)
    assert [(one.name, one.dsn) for one in two] == [("server1", "host=h"), ("server2", "host=i")]
    with pytest.raises(UsageError, match=r"--dsn: server 'server2' has the DSN of server 'server1' \(host=h\)"):
        fleet.requested_servers(("postgresql://h", "host=h"), None, None, several=True)
    with pytest.raises(UsageError, match="2 are given; list them in a file for --servers, each with its 'container'"):
        fleet.requested_servers(("host=h", "host=i"), None, None, several=True, cgroup="pid:7")
    with pytest.raises(UsageError, match="add its --dsn"):
        fleet.requested_servers((), None, None, several=True, cgroup="pid:7")


def used(**activity):
    return replace(INFO, activity=ServerActivity(free=10, **activity))


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (used(), []),
        (used(sessions=3), []),
        (used(replicas=2), ["server a is a primary with 2 replicas"]),
        (used(replicas=1, standby=True), []),
        (used(sessions=3, busy=1, hidden=2), ["1 of 3 sessions are active"]),
        (used(sessions=3, hidden=3), ["3 sessions of other users, whose state is hidden .GRANT pg_read_all_stats"]),
        (replace(used(sessions=3, busy=3, replicas=1), pooler=Pooler("P")), ["1 replica:"]),
    ],
)
def test_a_server_that_others_need_is_named(info, told):
    warnings = fleet.warn_of_use("server a", info)
    assert len(warnings) == len(told) and all(warning.startswith("Warning: ") for warning in warnings)
    for warning, text in zip(warnings, told, strict=True):
        assert text.replace(".GRANT", "(GRANT") in warning


def test_a_trial_takes_no_more_connections_than_there_are():
    fleet.require_connections("server a", used(), 8, 10)
    with pytest.raises(UsageError, match="server a: 8 clients and pgherd need 10 connections, but --connection-limit is 9"):
        fleet.require_connections("server a", used(), 8, 9)
    with pytest.raises(UsageError, match="9 clients and pgherd need 11 connections, but the server has 10 free"):
        fleet.require_connections("server a", used(), 9, None)
    assert fleet.most_clients([used()], None) == 8 and fleet.most_clients([used()], 5) == 3 and fleet.most_clients([], None) is None


def test_sessions_behind_a_pooler_are_tried(monkeypatch):
    monkeypatch.setattr(fleet, "answering_sessions", lambda dsn, number: (min(number, 10), ""))
    behind = replace(used(), pooler=Pooler("P"))
    fleet.require_connections("server a", behind, 8, None)
    fleet.require_connections("server a", replace(behind, direct=True), 10, None)
    with pytest.raises(UsageError, match="9 clients and pgherd need 11 sessions, but behind P 10 answer .*the others wait"):
        fleet.require_connections("server a", behind, 9, None)


def test_hosts_and_differences_are_described(listed):
    alpha, beta = fleet.read_servers(listed(TWO))
    same = fleet.describe_differences([fleet.found(alpha, INFO), fleet.found(beta, INFO)])
    assert same == ["2 servers on 2 hosts by label or address (rack1: alpha; h: beta)."]
    differ = fleet.describe_differences([fleet.found(alpha, INFO), fleet.found(beta, replace(INFO, version="18.1", scale=None))])
    assert "PostgreSQL differs: 17.2 in alpha, 18.1 in beta" in differ[1] and "scale differs: 5 in alpha, none in beta" in differ[2]
