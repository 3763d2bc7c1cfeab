"""Two network namespaces with a veth pair, for a link on one host.

The namespaces have no names. A process holds each of them, and a namespace ends with its process, together with its
virtual interface. The kernel ends the processes when pgherd ends (PDEATHSIG). They are also in the journal.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field

from pgherd.host import processes
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import Kill
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.protocol import Command, Node, Process

NEAR, FAR = "10.203.0.1", "10.203.0.2"
"""Addresses of the two ends, visible only in the namespaces."""
CARDS = ("pgherd-near", "pgherd-far")
"""Names of the virtual interfaces, each in its namespace."""
PREFIX_LENGTH = 30
_START_TIMEOUT_S = 5.0
TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
BURST = 128 * 1024
"""Bytes that a shaped link may send at once: more than one segment with segmentation offload."""


@dataclass
class Namespaces:
    """The connected pair. Commands of drivers at the near end begin with ``prefix``."""

    node: Node
    journal: Journal
    holders: list[Process] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)

    def inside(self, end: int) -> tuple[str, ...]:
        """Return the prefix of a command that runs at an end: 0 is near, 1 is far."""
        return ("nsenter", f"--net=/proc/{self.holders[end].pid}/ns/net", "--")

    @property
    def prefix(self) -> tuple[str, ...]:
        """Prefix of a command at the near end."""
        return self.inside(0)

    @property
    def alive(self) -> bool:
        """Whether both holders run."""
        return bool(self.holders) and all(holder.poll() is None for holder in self.holders)

    def close(self) -> None:
        """End the holders, and with them the namespaces."""
        for holder in self.holders:
            holder.signal(9)
        for holder in self.holders:
            holder.wait(10)
        for entry in self.entries:
            self.journal.done(entry)
        self.holders, self.entries = [], []


def require_root(node: Node) -> None:
    """Require that this host can create network namespaces; raises CapabilityError."""
    missing = sorted(name for name in TOOLS if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None)
    if missing:
        packages = ", ".join(sorted({TOOLS[name] for name in missing}))
        raise CapabilityError(f"network namespaces need {', '.join(missing)}; install {packages}")
    if os.geteuid() != 0:
        raise CapabilityError("network namespaces need root; run pgherd as root, or measure to another host with --to HOST")
    result = node.run(Command(["unshare", "--net", "true"]))
    if result.code != 0:
        raise CapabilityError(f"this host cannot create network namespaces: {result.err.strip()}; measure to another host with --to HOST")


def require_shaping(node: Node, journal: Journal, *, rate: float | None, delay: float | None) -> None:
    """Require that a link can be shaped, by a test.

    Raises CapabilityError with the missing kernel module.
    """
    pair = make(node, journal)
    try:
        shape(pair, rate=rate, delay=delay)
    finally:
        pair.close()


def make(node: Node, journal: Journal) -> Namespaces:
    """Create and connect two namespaces.

    Raises:
        TrialError: the kernel refuses a step.
    """
    pair = Namespaces(node, journal)
    try:
        for _ in range(2):
            holder = node.spawn(Command(["unshare", "--net", "sleep", "infinity"]))
            pair.holders.append(holder)
            start = processes.start_time(node, holder.pid)
            if start is not None:
                pair.entries.append(journal.note(Kill(pid=holder.pid, start=start)))
        _await_namespaces(pair)
        near, far = (str(holder.pid) for holder in pair.holders)
        _ip(pair, None, "link", "add", CARDS[0], "netns", near, "type", "veth", "peer", "name", CARDS[1], "netns", far)
        for end, address in enumerate((NEAR, FAR)):
            _ip(pair, end, "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", CARDS[end])
            _ip(pair, end, "link", "set", CARDS[end], "up")
            _ip(pair, end, "link", "set", "lo", "up")
    except BaseException:
        pair.close()
        raise
    return pair


def shape(pair: Namespaces, *, rate: float | None, delay: float | None) -> None:
    """Limit the near end's send rate (bits/s), and delay packets (ms) at both ends.

    Raises:
        CapabilityError: the kernel lacks the queueing discipline (sch_tbf, sch_netem), or tc is missing.
    """
    for end, card in enumerate(CARDS):
        if delay is not None:
            _tc(pair, end, card, "sch_netem", "root", "handle", "1:", "netem", "delay", f"{delay:g}ms", "limit", "100000")
        if rate is not None and end == 0:
            parent = ("root",) if delay is None else ("parent", "1:")
            _tc(pair, end, card, "sch_tbf", *parent, "tbf", "rate", f"{rate:.0f}bit", "burst", str(BURST), "latency", "50ms")


def _await_namespaces(pair: Namespaces) -> None:
    """Wait until the holders have left the namespace of this process."""
    host_namespace = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        if not pair.alive:
            raise TrialError("a network namespace could not be created: its process ended")
        if all(os.readlink(f"/proc/{holder.pid}/ns/net") != host_namespace for holder in pair.holders):
            return
        if time.monotonic() > deadline:
            raise TrialError(f"a network namespace was not created within {_START_TIMEOUT_S:.0f} s")
        time.sleep(0.005)


def _ip(pair: Namespaces, end: int | None, *arguments: str) -> None:
    prefix = () if end is None else pair.inside(end)
    result = pair.node.run(Command([*prefix, "ip", *arguments]))
    if result.code != 0:
        raise TrialError(f"ip {' '.join(arguments)}: {result.err.strip()}")


def _tc(pair: Namespaces, end: int, card: str, module: str, *arguments: str) -> None:
    if shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        raise CapabilityError("tc is missing, which shapes a link; install iproute2 (Fedora: iproute-tc)")
    result = pair.node.run(Command([*pair.inside(end), "tc", "qdisc", "add", "dev", card, *arguments]))
    if result.code != 0:
        raise CapabilityError(f"this kernel cannot shape the link ({result.err.strip().splitlines()[0]}): it needs {module}")
