"""``pgherd cluster`` without hosts: what it says, and its exit codes. With hosts: tests/it/test_cluster_engine.py."""

from __future__ import annotations

import json

import pytest

from pgherd.cli.main import run


def _call(capsys, *text):
    code = run(text)
    output = capsys.readouterr()
    return code, output.out, output.err


def test_without_a_cluster(own_directories, capsys):
    for verb in ("status", "stop"):
        code, out, err = _call(capsys, "cluster", verb)
        assert code == 2 and out == "" and "no cluster called 'default' has been started here" in err
    code, out, _ = _call(capsys, "cluster", "status", "--json")
    assert code == 2 and json.loads(out)["schema"] == "pgherd/error/2"


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ((), "Missing option '--hosts'"),
        (("--hosts", "a,a"), "names a twice"),
        (("--hosts", "-x"), "not a valid host name"),
        (("--hosts", "a", "--name", "A B"), "is not a valid name for a cluster"),
        (("--hosts", "a", "--ssh-config", "/nonexistent"), "does not exist"),
        (("--hosts", "a", "--port", "70000"), "70000"),
        (("--hosts", "root@a,b", "--label", "root@a:disk=nvme"), "root@a is not one of a, b"),
        (("--hosts", "a", "--label", "disk=nvme"), "write HOST:KEY=VALUE"),
    ],
)
def test_bad_input_is_one_message(own_directories, capsys, arguments, reason):
    code, _, err = _call(capsys, "cluster", "start", *arguments)
    assert code == 2 and reason in err and "Traceback" not in err


def test_hosts_that_are_gone_for_good_can_be_forgotten(capsys, monkeypatch):
    from pgherd.cluster import start

    def stop(name, say, *, forget=False):
        say("b: not stopped: it cannot be reached")
        return ["b"]

    monkeypatch.setattr(start, "stop", stop)
    code, out, _ = _call(capsys, "cluster", "stop")
    assert code == 1 and "Unreachable or not clean: b." in out and "--forget" in out
    code, out, _ = _call(capsys, "cluster", "stop", "--forget")
    assert code == 0 and "Cluster 'default' has ended. Forgotten: b." in out
    code, out, _ = _call(capsys, "cluster", "stop", "--forget", "--json")
    document = json.loads(out)
    assert code == 0 and document["unreachable"] == document["forgotten"] == ["b"]


def test_what_is_gone_is_started_again_by_the_command_that_is_shown(own_directories, capsys, monkeypatch):
    """With the cluster's name, its users, its configuration and its kind of environment; of a scheduler that somebody else has started
    there is none."""
    from pgherd.cluster import cluster_file, start, status
    from pgherd.cluster.cluster_file import AgentRecord, ClusterRecord

    agent = AgentRecord(name="me@a", pid=1, start=2, directory="/x", python="python3")
    cluster_file.make_directory("lab")
    record = ClusterRecord(name="lab", id="1", address="tls://x:1", pid=1, start=2, hosts=(agent,), ssh_config="/my config")
    cluster_file.save(record)
    gone = status.HostState("a", "10.0.0.1", "it hangs", None, None, None, None, {})
    monkeypatch.setattr(status, "read_status", lambda cluster: status.ClusterState(cluster, "tls://x:1", (gone,), ()))
    monkeypatch.setattr(start, "scheduler_lives", lambda known: True)
    code, out, _ = _call(capsys, "cluster", "status", "--name", "lab")
    assert code == 1 and "Restart the missing hosts: pgherd cluster start --hosts me@a --name lab --ssh-config '/my config'\n" in out
    cluster_file.save(record.model_copy(update={"private": True}))
    code, out, _ = _call(capsys, "cluster", "status", "--name", "lab")
    assert code == 1 and "--ssh-config '/my config' --private-venv\n" in out
    code, out, _ = _call(capsys, "cluster", "status", "--name", "tls://x:1")
    assert code == 1 and "Cluster at tls://x:1: 0 of 1 hosts joined." in out and "Restart the missing" not in out


def test_labels_are_shown_where_there_are_any(own_directories, capsys, monkeypatch):
    from pgherd.cluster import status

    hosts = [status.HostState(name, "10.0.0.1", None, None, None, 1, 1.0, {}) for name in ("a", "b")]
    monkeypatch.setattr(status, "read_status", lambda cluster: status.ClusterState(cluster, "tls://x:1", tuple(hosts), ()))
    code, out, _ = _call(capsys, "cluster", "status", "--name", "tls://x:1")
    assert code == 0 and "labels" not in out
    hosts[0].labels.update(disk="nvme", rack="2")
    code, out, _ = _call(capsys, "cluster", "status", "--name", "tls://x:1")
    assert code == 0 and "labels" in out and "disk=nvme,rack=2" in out
    code, out, _ = _call(capsys, "cluster", "status", "--name", "tls://x:1", "--json")
    assert [host["labels"] for host in json.loads(out)["hosts"]] == [{"disk": "nvme", "rack": "2"}, {}]
