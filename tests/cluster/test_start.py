"""Starting and stopping, without hosts: what is refused, and what is taken back. With hosts: tests/it/test_cluster_engine.py."""

from __future__ import annotations

import json
import os
import stat

import pytest

from pgherd.cluster import certificates, cluster_file, start
from pgherd.cluster.cluster_file import AgentRecord, ClusterRecord
from pgherd.cluster.ssh import Ssh
from pgherd.cluster.start import StartRequest
from pgherd.host import processes
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode


@pytest.fixture
def fake(monkeypatch):
    """No SSH: the answers of hosts by name; an exception is raised."""
    answers = {}

    def run(self, host, orders, payload=b"", timeout=60.0):
        answer = answers[host]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Ssh, "run", run)
    monkeypatch.setattr(Ssh, "address", lambda self, host: "127.0.0.1")
    return answers


def test_a_host_that_fails_takes_everything_back(own_directories, fake):
    fake["a"] = CapabilityError("host a: needs Python")
    messages = []
    with pytest.raises(CapabilityError, match="needs Python"):
        start.start(StartRequest("default", ("a",)), messages.append)
    assert cluster_file.names() == [] and not cluster_file.directory("default").exists()
    assert messages[0].startswith("the scheduler listens at tls://127.0.0.1:") and messages[-1] == "stopping what was started"


def test_an_agent_joins_under_its_host_s_name_without_the_user(own_directories, fake, monkeypatch):
    inputs = []

    def run(self, host, orders, payload=b"", timeout=60.0):
        inputs.append((host, json.loads(orders["files"]["agent.json"])["host"]))
        raise CapabilityError("no more is wanted")

    monkeypatch.setattr(Ssh, "run", run)
    with pytest.raises(CapabilityError, match="no more is wanted"):
        start.start(StartRequest("default", ("root@a",)), lambda sentence: None)
    assert inputs == [("root@a", "a")]


def test_the_scheduler_runs_until_stop_and_keeps_its_keys_to_itself(own_directories):
    cluster = start._start_new(StartRequest("default", ("a",), listen="127.0.0.1"), lambda sentence: None)
    try:
        assert start.scheduler_lives(cluster) and cluster.address.startswith("tls://127.0.0.1:") and cluster_file.load("default") == cluster
        for name in (certificates.MEMBER, "authority.key"):
            assert stat.S_IMODE((cluster_file.directory("default") / name).stat().st_mode) == 0o600
        with pytest.raises(UsageError, match="runs on b, not on a; stop it first"):
            agent = AgentRecord(name="b", pid=1, start=2, directory="/x", python="python3")
            start._require_same_hosts(cluster.model_copy(update={"hosts": (agent,)}), StartRequest("default", ("a",)))
    finally:
        assert start.stop("default", lambda sentence: None) == []
    assert not start.scheduler_lives(cluster) and cluster_file.names() == []


def test_labels_go_to_the_agents_and_stay_with_the_hosts(own_directories, monkeypatch):
    inputs, running = labelled_agents(monkeypatch)
    disk = StartRequest("default", ("me@a",), labels={"a": {"disk": "nvme"}})
    try:
        assert start.start(disk, lambda sentence: None).hosts[0].labels == {"disk": "nvme"}
        start.start(StartRequest("default", ("me@a",)), lambda sentence: None)
        assert inputs == [{"disk": "nvme"}, {"disk": "nvme"}], "what was gone is started again with the same"
        running["labels"] = {"disk": "nvme"}
        start.start(disk, lambda sentence: None)
        with pytest.raises(UsageError, match=r"host me@a runs with the labels disk=nvme, not with the labels disk=hdd; stop it first"):
            start.start(StartRequest("default", ("me@a",), labels={"a": {"disk": "hdd"}}), lambda sentence: None)
        known = cluster_file.load("default")
        assert known is not None and known.hosts[0].labels == {"disk": "nvme"}
        running.clear()
        extra = start.start(StartRequest("default", ("me@a",), labels={"a": {"rack": "2"}}), lambda sentence: None)
        assert inputs[-1] == extra.hosts[0].labels == {"disk": "nvme", "rack": "2"}, "a further label takes no other away"
    finally:
        start.stop("default", lambda sentence: None)


def test_the_labels_of_an_agent_that_nobody_wrote_down_are_its_own(own_directories, monkeypatch):
    """The driver was killed between the answer over SSH and its record."""
    _, running = labelled_agents(monkeypatch)
    running["labels"] = {"disk": "nvme"}
    try:
        start._start_new(StartRequest("default", ("a",), listen="127.0.0.1"), lambda sentence: None)
        with pytest.raises(UsageError, match=r"runs with the labels disk=nvme, not with the labels disk=nvme,rack=2"):
            start.start(StartRequest("default", ("a",), labels={"a": {"rack": "2"}}), lambda sentence: None)
        known = cluster_file.load("default")
        assert known is not None and [agent.name for agent in known.hosts] == ["a"], "what is to be stopped first is found by stop"
        assert start.start(StartRequest("default", ("a",)), lambda sentence: None).hosts[0].labels == {"disk": "nvme"}
    finally:
        start.stop("default", lambda sentence: None)


def labelled_agents(monkeypatch):
    """Neither SSH nor a scheduler: the labels that agents are started with are noted; they run already while the second has ``labels``."""
    inputs, running = [], {}

    def run(self, host, orders, payload=b"", timeout=60.0):
        if orders["action"] == "start":
            inputs.append(json.loads(orders["files"]["agent.json"])["labels"])
        answer = {"pid": 1, "start": 2, "directory": "/x", "python": "python3", "how": "ended"}
        return answer | ({"was": True, **running} if running else {})

    monkeypatch.setattr(Ssh, "run", run)
    monkeypatch.setattr(Ssh, "address", lambda self, host: "127.0.0.1")
    monkeypatch.setattr(start, "_start_scheduler", lambda directory, listen, port: (1, 2, "tls://127.0.0.1:4"))
    monkeypatch.setattr(start, "_end_scheduler", lambda known: None)
    monkeypatch.setattr(start, "scheduler_lives", lambda known: True)
    monkeypatch.setattr(start, "_wait_until_joined", lambda known: None)
    return inputs, running


def test_a_host_that_cannot_be_reached_stays_written_down(own_directories, fake):
    agents = tuple(AgentRecord(name=name, pid=1, start=2, directory="/x", python="python3") for name in ("a", "b"))
    time = processes.start_time(LocalNode(), os.getpid())
    cluster_file.make_directory("default")
    cluster_file.save(
        ClusterRecord(name="default", id="1", address="tls://127.0.0.1:4", pid=os.getpid(), start=(time or 0) + 1, hosts=agents)
    )
    fake |= {"a": {"how": "gone already", "left": ["not undone: a mount"]}, "b": UsageError("host b cannot be reached")}
    said = []
    assert start.stop("default", said.append) == ["a", "b"] and "a: not undone: a mount" in said
    fake |= {"a": {"how": "ended"}, "b": UsageError("host b cannot be reached")}
    messages = []
    assert start.stop("default", messages.append) == ["b"]
    assert sorted(messages) == ["a: ended", "b: not stopped: host b cannot be reached"]
    remaining = cluster_file.load("default")
    assert remaining is not None and [agent.name for agent in remaining.hosts] == ["b"]
    with pytest.raises(UsageError, match="its scheduler has ended; stop it first"):
        start.start(StartRequest("default", ("a", "b")), messages.append)
    with pytest.raises(UsageError, match="its scheduler has ended"):
        start.start(StartRequest("default", ("a", "b")), messages.append)
    assert start.stop("default", messages.append, forget=True) == ["b"] and cluster_file.names() == [], "it is gone for good"
    with pytest.raises(UsageError, match="no cluster called 'default'"):
        start.stop("default", messages.append)


def test_that_private_environments_were_wanted_is_written_down():
    """For the command that starts what is gone again."""
    record = ClusterRecord(name="default", id="1", address="tls://127.0.0.1:4", pid=1, start=2)
    private = start._with_agents(record, StartRequest("default", ("a",), private=True), {})
    assert not start._with_agents(record, StartRequest("default", ("a",)), {}).private and private.private
    assert start._with_agents(private, StartRequest("default", ("a",)), {}).private


def test_a_listen_address_that_is_not_ours(own_directories, fake):
    with pytest.raises(CapabilityError, match=r"the scheduler does not start at 192\.0\.2\.1"):
        start.start(StartRequest("default", ("a",), listen="192.0.2.1"), lambda sentence: None)
    assert cluster_file.names() == [] and not cluster_file.directory("default").exists()
