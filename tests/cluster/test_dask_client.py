"""The engine over a real scheduler and two workers on loopback."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from pgherd.cluster import dask_client, host_software, scheduler_address
from pgherd.cluster import dask_client as module
from pgherd.cluster.dask_client import ClusterMember
from pgherd.cluster.interfaces import HostLost
from pgherd.cluster.scheduler_address import SchedulerAddress
from pgherd.model.errors import UsageError


@pytest.fixture
def joined(loopback):
    with dask_client.connect(loopback) as made:
        yield made


def test_hosts_are_the_workers_that_are_there(joined):
    assert joined.hosts() == ("left", "right") and joined.lost() == {}
    assert joined.addresses() == {"left": "127.0.0.2", "right": "127.0.0.3"} == joined.joined()


def test_actors_are_made_once_per_host_and_called_at_the_same_time(joined):
    # An object of the standard library will do: it is importable on every host.
    remotes = joined.actors(threading.Barrier, 2)
    assert {name: remote.address for name, remote in remotes.items()} == joined.addresses()
    waiting = threading.Thread(target=remotes["left"].call, args=("wait", 20.0), kwargs={"timeout": 30})
    waiting.start()
    remotes["left"].call("wait", 20.0, timeout=30)  # one alone would never return
    waiting.join(10)
    assert not waiting.is_alive()
    counters = joined.actors(Counter, "abca")
    assert counters["right"].call("most_common", 1, timeout=10) == [("a", 2)]
    counters["right"].call("update", "bb", timeout=10)
    assert [counters[name].call("__getitem__", "b", timeout=10) for name in ("left", "right")] == [1, 3]


def test_errors_and_deadlines(joined):
    counters = joined.actors(Counter)
    with pytest.raises(AttributeError):
        counters["left"].call("no_such_method", timeout=10)
    with pytest.raises(ValueError, match="invalid literal"):
        joined.actors(int, "no number")
    with pytest.raises(FileNotFoundError, match="'/nonexistent on host left'"):
        joined.actors(os.listdir, "/nonexistent")
    barriers = joined.actors(threading.Barrier, 2)
    with pytest.raises(TimeoutError, match="wait on host left takes over 0 s"):
        barriers["left"].call("wait", 3.0, timeout=0.1)
    assert joined.hosts() == ("left", "right"), "a slow method is no lost host"


def test_a_host_on_which_nothing_gets_made_is_lost_by_name(joined, monkeypatch):
    monkeypatch.setattr(dask_client, "_MAKE_TIMEOUT_S", 0.2)
    with pytest.raises(HostLost, match="host (left|right) is lost: its agent was not created within 0 s"):
        joined.actors(time.sleep, 1.5)
    deadline = time.monotonic() + 30
    while joined.lost() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert joined.hosts() == ("left", "right"), "they are there again, and are used again"
    monkeypatch.undo()
    assert joined.actors(Counter)["left"].call("total", timeout=10) == 0


def test_clocks_of_one_machine_agree(joined):
    for offset in joined.offsets().values():
        assert abs(offset.seconds) <= offset.uncertainty + 1e-4 and offset.n in dask_client.TRIPS
    deadline = time.monotonic() + 30
    while not joined.beats(0.0)["left"] and time.monotonic() < deadline:
        time.sleep(0.05)
    first = joined.beats(0.0)["left"][0]
    assert first.n == 1 and abs(first.seconds) <= first.uncertainty + 1e-4
    assert first in joined.beats(first.at)["left"] and first not in joined.beats(first.at + 1e-3)["left"]


def test_a_second_driver_is_refused_and_a_later_one_is_not(loopback, monkeypatch):
    monkeypatch.setattr(dask_client, "BUSY", 0.2)
    with dask_client.connect(loopback) as first:
        counters = first.actors(Counter)
        with pytest.raises(UsageError, match=r"the cluster is in use.*another driver"):
            dask_client.connect(loopback)
        assert counters["left"].call("total", timeout=10) == 0
        seen = dask_client.connect(loopback, hold=False)
        assert seen.ask("look")["left"]["objects"] == 1, "to look takes nothing away"
        seen.close()
    with dask_client.connect(loopback) as second:
        assert second.hosts() == ("left", "right")


@pytest.mark.parametrize(("holder", "taken"), [(None, ["b", "a", "c"]), ("another driver holds it", ["b"])])
def test_the_first_host_decides_between_drivers_that_start_together(monkeypatch, holder, taken):
    """Otherwise each could hold what another waits for, and none would get all."""
    asked = []

    async def attach(self, member, deadline):
        asked.append(member.host)
        await asyncio.sleep(0)
        return holder if member.host == "b" else None

    monkeypatch.setattr(module.DaskClusterClient, "_attach", attach)
    members = [ClusterMember("a", "", "", why="it has not joined"), ClusterMember("b", "", ""), ClusterMember("c", "", "")]
    client = module.DaskClusterClient(SimpleNamespace(loop=SimpleNamespace(asyncio_loop=None)), members)
    if holder is None:
        asyncio.run(client.attach())
    else:
        with pytest.raises(UsageError, match=r"the cluster is in use.*\(b: another driver holds it\)"):
            asyncio.run(client.attach())
    assert asked == taken


def test_a_host_that_took_the_driver_for_lost_is_lost_to_it_and_found_again(joined, monkeypatch):
    counters = joined.actors(Counter)
    token, joined._token = joined._token, "somebody else"
    with pytest.raises(HostLost, match="treated this driver as lost"):
        counters["left"].call("total", timeout=10)
    joined._token = token
    assert joined.hosts() == ("right",) and "treated this driver" in joined.lost()["left"]
    with pytest.raises(HostLost):
        counters["left"].call("total", timeout=10)
    deadline = time.monotonic() + 30
    while joined.lost() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert joined.hosts() == ("left", "right")
    with pytest.raises(HostLost, match="joined again; its work is gone"):
        counters["left"].call("total", timeout=10)
    assert joined.actors(Counter)["left"].call("total", timeout=10) == 0


def test_a_host_that_the_scheduler_has_missed_first_is_lost_like_any_other(joined):
    """Dask then refuses even to name a method of what was there, before our own sign of life has failed."""

    class Missed:
        def __getattr__(self, name):
            raise RuntimeError("Worker holding Actor was lost.  Status: error")

    counters = joined.actors(Counter)
    joined._members["left"].post = Missed()
    with pytest.raises(HostLost, match="host left is lost: .*Worker holding Actor was lost"):
        counters["left"].call("total", timeout=10)
    deadline = time.monotonic() + 30
    while joined.lost() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert joined.hosts() == ("left", "right")


def test_a_driver_of_another_version_is_refused_and_holds_nothing(loopback, monkeypatch):
    # The hosts run in this process, too: both tell what they are first, and then the driver itself.
    own = host_software.required_versions()
    told = iter([own, own, {**own, "pgherd": "0.0.1"}])
    monkeypatch.setattr(host_software, "required_versions", lambda: next(told))
    with pytest.raises(
        UsageError, match=r"software differs between the hosts and this machine: pgherd is 0\.0\.1 on this machine; .* on left, right"
    ):
        dask_client.connect(loopback)
    monkeypatch.undo()
    with dask_client.connect(loopback) as made:
        assert made.hosts() == ("left", "right")


def test_a_worker_without_tls_is_refused_and_not_found_again(loopback, monkeypatch):
    """The workers of this cluster have TLS. One of them is judged as if it had not."""

    def is_encrypted(address):
        return "127.0.0.3" not in address

    with monkeypatch.context() as patch:
        patch.setattr(scheduler_address, "is_encrypted", is_encrypted)
        with pytest.raises(UsageError, match=r"the worker tls://127\.0\.0\.3:\d+ of the scheduler .* is not encrypted"):
            dask_client.connect(loopback)
    with dask_client.connect(loopback) as made:
        monkeypatch.setattr(scheduler_address, "is_encrypted", is_encrypted)
        lost = made._members["right"]
        made._lose(lost, "for the test")
        made.wait_for(made._rejoin(lost))
        assert made.hosts() == ("left",)


def test_where_nobody_answers(loopback, monkeypatch):
    monkeypatch.setattr(dask_client, "CONNECT", 1.0)
    with pytest.raises(UsageError, match=r"no Dask scheduler that accepts this certificate responds at tls://127.0.0.1:9"):
        dask_client.connect("tls://127.0.0.1:9")


@pytest.mark.parametrize("uid", [0, 1000])
def test_no_scheduler_without_tls_is_spoken_to(monkeypatch, uid):
    """Whoever listens there has the driver run what it sends."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with socket.create_server(("127.0.0.1", 0)) as attacker:
        attacker.settimeout(0.2)
        with pytest.raises(UsageError, match="is not encrypted"):
            dask_client.connect(f"tcp://127.0.0.1:{attacker.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            attacker.accept()


def _client(*workers):
    async def identity(n_workers):
        return {"workers": {f"tls://{host}:{port}": {"host": host, "name": name} for host, port, name in workers}}

    return SimpleNamespace(scheduler=SimpleNamespace(identity=identity))


def test_several_workers_of_one_machine_are_one_host():
    client = _client(("10.0.0.1", 1, "a"), ("10.0.0.2", 1, "tls://10.0.0.2:1"), ("10.0.0.1", 2, "a2"), ("10.0.0.3", 1, 7))
    found = asyncio.run(module.joined_members(client))
    assert [(one.host, one.worker) for one in found] == [
        ("a", "tls://10.0.0.1:1"),
        ("10.0.0.2", "tls://10.0.0.2:1"),
        ("10.0.0.3", "tls://10.0.0.3:1"),
    ]
    assert len(asyncio.run(module.joined_members(client, each=True))) == 4


def test_the_clusters_order_and_who_is_missing():
    found = asyncio.run(module.joined_members(_client(("10.0.0.1", 1, "b"), ("10.0.0.2", 1, "a"))))
    assert [one.host for one in module.in_cluster_order(found, SchedulerAddress("tls://x:1"))] == ["a", "b"]
    ordered = module.in_cluster_order(found, SchedulerAddress("tls://x:1", None, ("b", "c", "a")))
    assert [(one.host, one.why is None) for one in ordered] == [("b", True), ("c", False), ("a", True)]
    assert ordered[1].gone.is_set() and "has not joined" in (ordered[1].why or "")


def test_a_cluster_without_workers_is_told_how_to_get_one():
    with pytest.raises(UsageError, match=r"no worker has joined tls://x:1; start one on each host: 'dask worker tls://x:1"):
        module.in_cluster_order([], SchedulerAddress("tls://x:1"))
