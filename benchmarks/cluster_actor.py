"""What benchmarks/cluster.py runs on its hosts, which have no benchmarks: sent by value."""

from __future__ import annotations

import subprocess
import sys

SERVER = "sleep 98765"
"""The command line of what stands for a server."""


class Starter:
    """Starts a process at an instant of its host's clock."""

    def __init__(self) -> None:
        from pgherd.cluster.interfaces import this_host
        from pgherd.node.local import LocalNode

        self.host, self.node = this_host(), LocalNode()
        self.files: dict[str, bytes] = {}
        self.server = None

    def start_at(self, at: float) -> float:
        """Start a process then; when it was started, by the host's clock."""
        import time

        from pgherd.node.protocol import Command

        left = at - time.time()
        if left > 0.01:
            time.sleep(left - 0.005)
        while time.time() < at:
            time.sleep(0.0005)
        started = time.time()
        self.node.spawn(Command(["true"])).wait(10)
        return started

    def serve(self) -> None:
        """Start what only ``lost`` ends."""
        from pgherd.node.protocol import Command

        self.server = self.node.spawn(Command(["sleep", "98765"]))

    def nap(self, seconds: float) -> None:
        """Do nothing for long."""
        import time

        time.sleep(seconds)

    def sample(self, seconds: int, metrics: dict[str, int]) -> None:
        """Have sampled for so long, once a second: sampler → number of metrics, all made up. Hosts of one process share what one made."""
        import pathlib
        import random
        import tempfile
        import threading

        from pgherd.store import samples

        rng = random.Random(self.host)
        rows = (
            (1.7e9 + t, sampler, "host" if sampler == "cpu" else "container:db01", {f"m{n}": rng.random() * 1e6 for n in range(count)})
            for t in range(seconds)
            for sampler, count in metrics.items()
        )
        # Kept at a module of the host's: this class comes anew with each object.
        made: dict[str, dict[str, bytes]] = samples.__dict__.setdefault("made_for_benchmark", {})
        with samples.__dict__.setdefault("lock_of_benchmark", threading.Lock()), tempfile.TemporaryDirectory() as directory:
            key = f"{seconds} {metrics}"
            if key not in made:
                made[key] = {file.name: file.read_bytes() for file in samples.write_samples(pathlib.Path(directory), rows)}
            self.files = made[key]

    def collect(self) -> dict[str, bytes]:
        """The files of what was sampled: name → bytes."""
        return self.files

    def lost(self) -> None:
        """End what was started."""
        if self.server is not None:
            self.server.signal(15)
            self.server.wait(10)


def make() -> Starter:
    """One on each host."""
    return Starter()


class Pretended:
    """A host's agent as the planning sees it. What a host does by itself is done once: it is the same for any number of hosts."""

    def __init__(self) -> None:
        import threading

        from pgherd.distributed import agent as host_agent

        self.agent = host_agent.HostAgent()
        # Kept at a module of the host's: this class comes anew with each object. The hosts of a process find out one after the other.
        self.known: dict[str, object] = host_agent.__dict__.setdefault("known_to_benchmark", {})
        self.one_by_one = host_agent.__dict__.setdefault("lock_of_benchmark", threading.Lock())

    def hello(self) -> object:
        """What this host is."""
        return self._once("hello")

    def prepare(self, *arguments: object) -> object:
        """The real one's work, once for the same request."""
        return self._once("prepare", *arguments)

    def _once(self, method: str, *arguments: object) -> object:
        key = f"{method} {arguments!r}"
        with self.one_by_one:
            if key not in self.known:
                self.known[key] = getattr(self.agent, method)(*arguments)
        return self.known[key]


def pretend() -> Pretended:
    """One on each host."""
    return Pretended()


def by_value() -> None:
    """Have them sent as they are rather than by name."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


_DRIVER = """
import sys, time
import cloudpickle
from pgherd.cluster import dask_client
make = cloudpickle.loads(bytes.fromhex(sys.argv[1]))
with dask_client.connect("default") as made:
    for remote in made.actors(make).values():
        remote.call("serve", timeout=30)
    print("ready", flush=True)
    time.sleep(600)
"""


def driver(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A driver of its own that holds the cluster, with a server on each host; returns once they run."""
    import cloudpickle

    by_value()
    words = [sys.executable, "-c", _DRIVER, cloudpickle.dumps(make).hex()]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, cwd="/")
    assert process.stdout is not None
    process.stdout.readline()
    return process
