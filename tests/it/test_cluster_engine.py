"""The engine on hosts of its own: started over SSH, called, its clocks measured, each way of losing a host, the driver lost, stopped."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from pgherd.cluster import certificates, cluster_file, dask_client
from pgherd.cluster.interfaces import LOST_AFTER, HostLost
from pgherd.model.errors import TrialError, UsageError

_spec = importlib.util.spec_from_file_location("cluster_hosts", Path(__file__).with_name("cluster_hosts.py"))
assert _spec and _spec.loader
cluster_hosts = importlib.util.module_from_spec(_spec)
sys.modules["cluster_hosts"] = cluster_hosts
_spec.loader.exec_module(cluster_hosts)

NAMES = ("a", "b", "c")
SKEW = {"b": 0.35, "c": -1.2}
PATIENCE = 60.0


class Actor:
    """Sent to the hosts by value: they have no test modules."""

    def __init__(self, scratch: str) -> None:
        from pgherd.cluster.interfaces import this_host

        self.host, self.scratch, self.child = this_host(), scratch, None

    def double(self, number: int) -> int:
        return 2 * number

    def who(self) -> tuple[str, str]:
        from pgherd.cluster.interfaces import this_host

        return this_host(), self.host

    def now(self) -> float:
        import time

        return time.time()

    def nap(self, seconds: float) -> str:
        import time

        time.sleep(seconds)
        return "slept"

    def fail(self, how: str) -> None:
        from pgherd.model.errors import CapabilityError

        if how == "capability":
            raise CapabilityError("this host cannot do that")
        if how == "missing":
            open("/nonexistent/file").close()
        raise ValueError(how)

    def start(self) -> int:
        """A server, as it were: a process that only lost() ends in order."""
        from pgherd.node.local import LocalNode
        from pgherd.node.protocol import Command

        self.child = LocalNode().spawn(Command(["sleep", "987"]))
        return self.child.pid

    def lost(self) -> None:
        import pathlib

        if self.child is not None:
            self.child.signal(15)
            self.child.wait(10)
        pathlib.Path(self.scratch, f"lost-{self.host}").touch()


def make(scratch: str) -> Actor:
    return Actor(scratch)


cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def bed() -> Iterator[Any]:
    root = Path(tempfile.mkdtemp(prefix="it-cluster-", dir="/tmp"))
    root.chmod(0o755)
    made = cluster_hosts.Bed(root, NAMES, SKEW)
    kept = os.environ.get("XDG_STATE_HOME")
    try:
        made.up()
    except cluster_hosts.NotToBeHad as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    try:
        os.environ["XDG_STATE_HOME"] = made.environment()["XDG_STATE_HOME"]
        yield made
        with contextlib.suppress(Exception):
            made.pgherd("cluster", "stop")
    finally:
        os.environ.pop("XDG_STATE_HOME", None)
        if kept is not None:
            os.environ["XDG_STATE_HOME"] = kept
        made.down()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def started(bed) -> Any:
    """The cluster, started over SSH."""
    ended = bed.pgherd("cluster", "start", "--hosts", ",".join(NAMES), "--ssh-config", str(bed.config), "--json")
    assert ended.returncode == 0, ended.stderr
    return bed, json.loads(ended.stdout)


@pytest.fixture
def joined(started, tmp_path_factory) -> Iterator[Any]:
    """A driver in this process, with an actor on each host."""
    bed, _ = started
    with bed.inside(), dask_client.connect("default") as made:
        made.scratch = Path(tempfile.mkdtemp(dir=bed.root))
        yield bed, made


def wait_until(done, seconds: float = PATIENCE) -> float:
    """Seconds until it came true."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < seconds, f"nothing within {seconds:.0f} s"
        time.sleep(0.02)
    return time.monotonic() - began


def again(bed) -> None:
    """Start the agents that are gone."""
    ended = bed.pgherd("cluster", "start", "--hosts", ",".join(NAMES), "--ssh-config", str(bed.config))
    assert ended.returncode == 0, ended.stderr


def test_started_over_ssh_and_told(started):
    bed, document = started
    assert document["schema"] == "pgherd/cluster/2" and document["address"].startswith("tls://") and document["gone"] == []
    assert [host["name"] for host in document["hosts"]] == list(NAMES)
    assert [host["address"] for host in document["hosts"]] == [bed.address(name) for name in NAMES]
    assert all(host["memory"] < 150e6 and host["used_by"] is None and host["software"]["pgherd"] for host in document["hosts"])
    assert not [difference for difference in document["differences"] if difference["refused"]]
    directory = cluster_file.directory("default")
    for file in directory.iterdir():
        assert file.name in ("scheduler.log", "address", "cluster.json") or file.stat().st_mode & 0o077 == 0, file
    again = bed.pgherd("cluster", "start", "--hosts", "a,b", "--ssh-config", str(bed.config))
    assert again.returncode == 2 and "runs on a, b, c, not on a, b" in again.stderr


def test_an_actor_on_each_host(joined):
    bed, made = joined
    assert made.hosts() == NAMES and made.lost() == {}
    remotes = made.actors(make, str(made.scratch))
    assert {name: remote.address for name, remote in remotes.items()} == {name: bed.address(name) for name in NAMES}
    for name, remote in remotes.items():
        assert remote.call("double", 21, timeout=10) == 42 and remote.call("who", timeout=10) == (name, name)
    with pytest.raises(Exception, match="this host cannot do that") as told:
        remotes["a"].call("fail", "capability", timeout=10)
    assert type(told.value).__name__ == "CapabilityError" and told.value.exit_code == 3
    with pytest.raises(FileNotFoundError) as told:
        remotes["b"].call("fail", "missing", timeout=10)
    assert told.value.filename == "/nonexistent/file"
    with pytest.raises(ValueError, match="odd"):
        remotes["b"].call("fail", "odd", timeout=10)
    # A long call holds up neither beats nor other calls; one that takes too long is given up, and the host is not lost by it.
    slow = threading.Thread(target=remotes["c"].call, args=("nap", 3.0), kwargs={"timeout": 30})
    slow.start()
    began = time.monotonic()
    assert remotes["c"].call("double", 1, timeout=10) == 2 and time.monotonic() - began < 2.5
    with pytest.raises(TimeoutError):
        remotes["c"].call("nap", 2.0, timeout=0.2)
    slow.join()
    assert made.lost() == {}
    # Another driver is refused while this one holds the hosts.
    engine_busy, dask_client.BUSY = dask_client.BUSY, 0.5
    try:
        with pytest.raises(UsageError, match=f"in use.*pid {os.getpid()}"):
            dask_client.connect("default")
    finally:
        dask_client.BUSY = engine_busy
    assert made.actors(make, str(made.scratch)) and (made.scratch / "lost-a").exists(), "what is replaced is let go of"


def test_clocks_are_measured_within_their_uncertainty(joined):
    _, made = joined
    remotes = made.actors(make, str(made.scratch))
    offsets = made.offsets()
    for name in NAMES:
        assert abs(offsets[name].seconds - SKEW.get(name, 0.0)) <= offsets[name].uncertainty + 1e-4, offsets[name]
        assert 0 < offsets[name].uncertainty < 0.1 and offsets[name].n in dask_client.TRIPS
        between = remotes[name].call("now", timeout=10) - time.time()
        assert abs(between - SKEW.get(name, 0.0)) < 1, "the actor's own clock is the one that was measured"
    wait_until(lambda: made.beats(0.0)["b"])
    assert all(abs(offset.seconds - SKEW["b"]) <= offset.uncertainty + 1e-4 for offset in made.beats(0.0)["b"])


def test_a_killed_agent_is_noticed_and_its_children_are_gone_and_it_is_started_again(joined, chance):
    bed, made = joined
    remotes = made.actors(make, str(made.scratch))
    remotes["a"].call("start", timeout=10)
    wait_until(lambda: bed.pids("a", "sleep 987"))  # started through programs that replace each other
    waiting = _in_thread(lambda: remotes["a"].call("nap", 60.0, timeout=60))
    time.sleep(chance.uniform(0.1, 2.2))  # at any moment between two beats
    os.kill(bed.agent("a"), signal.SIGKILL)
    error, took = waiting()
    assert isinstance(error, HostLost) and error.host == "a" and took < 10
    wait_until(lambda: not bed.pids("a", "sleep 987"), 30)
    assert made.hosts() == ("b", "c") and list(made.lost()) == ["a"]
    assert remotes["b"].call("double", 4, timeout=10) == 8, "the others go on"
    ended = bed.pgherd("cluster", "status", "--json")
    assert ended.returncode == 1 and json.loads(ended.stdout)["gone"] == ["a"]
    again(bed)
    wait_until(lambda: made.hosts() == NAMES)
    with pytest.raises(HostLost, match="joined again"):
        remotes["a"].call("double", 4, timeout=10)
    assert made.actors(make, str(made.scratch))["a"].call("double", 4, timeout=10) == 8


def test_a_hanging_and_a_cut_off_host_are_noticed_and_used_again(joined, chance):
    bed, made = joined
    remotes = made.actors(make, str(made.scratch))
    for name in ("b", "c"):
        remotes[name].call("start", timeout=10)
    waiting = [_in_thread(lambda name=name: remotes[name].call("nap", 60.0, timeout=60)) for name in ("b", "c")]
    time.sleep(chance.uniform(0.1, 2.2))
    stopped = bed.agent("b")
    os.kill(stopped, signal.SIGSTOP)
    bed.cut("c")
    try:
        for wait in waiting:
            error, took = wait()
            assert isinstance(error, HostLost) and "no heartbeat" in error.why
            assert took < LOST_AFTER + 4
        assert made.hosts() == ("a",)
        # The one that is cut off has noticed, too, and has stopped its server.
        wait_until(lambda: not bed.pids("c", "sleep 987") and (made.scratch / "lost-c").exists(), 30)
        assert bed.pids("b", "sleep 987")
    finally:
        os.kill(stopped, signal.SIGCONT)
        bed.mend("c")
    wait_until(lambda: made.hosts() == NAMES)
    assert not bed.pids("b", "sleep 987") and (made.scratch / "lost-b").exists()
    assert all(remote.call("double", 1, timeout=10) == 2 for remote in made.actors(make, str(made.scratch)).values())


DRIVER = """
import sys, time
from pgherd.cluster import dask_client
import cloudpickle
make = cloudpickle.loads(bytes.fromhex(sys.argv[1]))
with dask_client.connect("default") as made:
    for remote in made.actors(make, sys.argv[2]).values():
        remote.call("start", timeout=10)
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_killed_driver_is_missed_and_the_next_one_finds_clean_hosts(started, chance):
    bed, _ = started
    scratch = Path(tempfile.mkdtemp(dir=bed.root))
    with bed.inside():
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, cloudpickle.dumps(make).hex(), str(scratch)],
            stdout=subprocess.PIPE,
            env=bed.environment(),
            cwd="/",
        )
    try:
        assert driver.stdout is not None and driver.stdout.readline() == b"ready\n"
        wait_until(lambda: all(bed.pids(name, "sleep 987") for name in NAMES))
        time.sleep(chance.uniform(0.0, 2.2))
    finally:
        driver.kill()
        driver.communicate()
    with bed.inside(), dask_client.connect("default") as made:  # waits until the hosts have missed the other one
        assert made.hosts() == NAMES
        assert sorted(path.name for path in scratch.iterdir()) == [f"lost-{name}" for name in NAMES]
        assert not any(bed.pids(name, "sleep 987") for name in NAMES)


def test_without_a_certificate_of_this_cluster_nobody_gets_in(started, tmp_path):
    bed, document = started
    stranger = certificates.authority("another")
    (tmp_path / certificates.AUTHORITY).write_text((cluster_file.directory("default") / certificates.AUTHORITY).read_text())
    certificates.write_private(tmp_path / certificates.MEMBER, stranger.issue("stranger"))
    host, port = document["address"].removeprefix("tls://").split(":")
    with bed.inside():
        with pytest.raises(UsageError, match="certificate"):
            dask_client.connect(document["address"], tls=tmp_path)
        with pytest.raises(UsageError, match="is not encrypted"):
            dask_client.connect(f"tcp://{host}:{port}")
        with socket.create_connection((host, int(port)), 5) as plain:  # nothing is said to whoever speaks without TLS
            plain.sendall(b"\0" * 64)
            plain.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert len(plain.recv(4096)) < 64


def test_stop_leaves_nothing(started):
    bed, document = started
    ended = bed.pgherd("cluster", "stop", "--json")
    assert ended.returncode == 0 and json.loads(ended.stdout)["unreachable"] == [], ended.stderr
    for name in NAMES:
        wait_until(lambda name=name: not bed.pids(name, "pgherd"), 10)
        assert not list((bed.root / name / "state").rglob("*.pem")) and not list((bed.root / name / "state").rglob("agent.json"))
    assert cluster_file.names() == [] and not cluster_file.directory("default").exists()
    assert bed.pgherd("cluster", "status").returncode == 2
    host, port = document["address"].removeprefix("tls://").split(":")
    with bed.inside(), pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


def test_a_host_that_cannot_be_started_takes_all_back(bed):
    where = ("--ssh-config", str(bed.config), "--listen", cluster_hosts.DRIVER)
    ended = bed.pgherd("cluster", "start", "--hosts", "a,nowhere.invalid", *where)
    assert ended.returncode == 2 and "nowhere.invalid" in ended.stderr and "Traceback" not in ended.stderr
    assert cluster_file.names() == [] and not bed.pids("a", "pgherd")


def _in_thread(call) -> Any:
    """Start a call; the function that waits for its error, and tells how long it took."""
    ended: list[Any] = []

    def run() -> None:
        began = time.monotonic()
        try:
            ended.append((call(), time.monotonic() - began))
        except (TrialError, OSError) as error:
            ended.append((error, time.monotonic() - began))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> Any:
        thread.join(PATIENCE)
        return ended[0]

    return wait
