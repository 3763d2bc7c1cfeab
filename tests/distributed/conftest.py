"""An engine without a network: objects in this process, hosts that can be lost, clocks that can be set."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from pgherd.cluster.interfaces import HostClockOffset, HostLost


class FakeRemote:
    def __init__(self, engine, host, actor):
        self.engine, self.host, self.address, self.actor = engine, host, "127.0.0.1", actor

    def call(self, method, *arguments, timeout):
        gone = self.engine.gone[self.host]
        if gone.is_set():
            raise HostLost(self.host, self.engine.why[self.host])
        self.engine.calls.append((self.host, method))
        finished = self.engine.pool.submit(getattr(self.actor, method), *arguments)
        deadline = time.monotonic() + timeout
        while not finished.done() and not gone.is_set() and time.monotonic() < deadline:
            wait([finished], 0.02)
        if gone.is_set():
            raise HostLost(self.host, self.engine.why[self.host])
        if not finished.done():
            raise TimeoutError(f"{method} takes over {timeout:.0f} s")
        return finished.result()


class FakeEngine:
    """``offsets_of``: host → (seconds, uncertainty). ``lose`` and ``find`` a host at any time."""

    def __init__(self, hosts, offsets_of=None):
        self.names = tuple(hosts)
        self.offsets_of = offsets_of or {}
        self.beats_of = {}
        self.gone = {host: threading.Event() for host in hosts}
        self.why = {}
        self.calls = []
        self.made = []
        self.actors_of = {}
        self.closed = False
        self.pool = ThreadPoolExecutor(64)

    def hosts(self):
        return tuple(host for host in self.names if not self.gone[host].is_set())

    def lost(self):
        return {host: self.why[host] for host in self.names if self.gone[host].is_set()}

    def actors(self, make, *arguments):
        self.made.append(make)
        self.actors_of = {host: make(*arguments) for host in self.hosts()}
        return {host: FakeRemote(self, host, actor) for host, actor in self.actors_of.items()}

    def offsets(self):
        result = {host: self.offsets_of.get(host, (0.0, 0.0005)) for host in self.hosts()}
        return {host: HostClockOffset(seconds=s, uncertainty=u, at=time.time(), round_trip=2 * u, n=16) for host, (s, u) in result.items()}

    def beats(self, since):
        return {host: [item for item in result if item.at >= since] for host, result in self.beats_of.items()}

    def lose(self, host, why="no sign of life for 8 s"):
        self.why[host] = why
        self.gone[host].set()

    def find(self, host):
        self.gone[host].clear()

    def close(self):
        self.closed = True
        self.pool.shutdown(wait=False)


@pytest.fixture
def engine_of():
    """Makes engines; all of them end with the test."""
    created = []

    def make(hosts, offsets_of=None):
        created.append(FakeEngine(hosts, offsets_of))
        return created[-1]

    yield make
    for engine in created:
        for host in engine.names:
            engine.gone[host].set()
        engine.close()
