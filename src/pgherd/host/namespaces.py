"""Two network namespaces joined by a pair of virtual cards (veth), for a link on one host.

Each namespace is held by a process of ours and has no name: it goes when that process ends, which the kernel sees to when we die,
however we die (PDEATHSIG). The virtual cards go with their namespaces. The processes are in the journal, too.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field

from pgherd.host import processes
from pgherd.host.journal import Journal
from pgherd.host.undo import Kill
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.protocol import Command, Node, Process

NEAR, FAR = "10.203.0.1", "10.203.0.2"
"""Addresses of the two ends; nobody else sees them."""
CARDS = ("pgherd-near", "pgherd-far")
"""Names of the virtual cards, each in its namespace."""
PREFIX_LENGTH = 30
_HOLD_SECONDS = 5.0
TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
BURST = 128 * 1024
"""Bytes that a shaped link may send at once: more than one segment of a card that cuts them itself."""


@dataclass
class Namespaces:
    """The pair, up and joined. Drivers of the near end start with ``prefix``."""

    node: Node
    journal: Journal
    holders: list[Process] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)

    def inside(self, end: int) -> tuple[str, ...]:
        """What stands before a command that is to run at an end: 0 the near one, 1 the far one."""
        return ("nsenter", f"--net=/proc/{self.holders[end].pid}/ns/net", "--")

    @property
    def prefix(self) -> tuple[str, ...]:
        """Of the near end."""
        return self.inside(0)

    @property
    def alive(self) -> bool:
        """Whether both are still held."""
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


def insist(node: Node) -> None:
    """Insist that this host can make network namespaces; raises CapabilityError."""
    missing = sorted(name for name in TOOLS if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None)
    if missing:
        packages = ", ".join(sorted({TOOLS[name] for name in missing}))
        raise CapabilityError(f"network namespaces need {', '.join(missing)}; install {packages}")
    if os.geteuid() != 0:
        raise CapabilityError("network namespaces need root; run pgherd as root, or give a host to measure to with --to HOST")
    tried = node.run(Command(["unshare", "--net", "true"]))
    if tried.code != 0:
        raise CapabilityError(f"this host lets nobody make network namespaces: {tried.err.strip()}; give a host with --to HOST")


def insist_shaping(node: Node, journal: Journal, *, rate: float | None, delay: float | None) -> None:
    """Insist that a link can be shaped so, by trying; raises CapabilityError with the kernel module that is missing."""
    made = make(node, journal)
    try:
        shape(made, rate=rate, delay=delay)
    finally:
        made.close()


def make(node: Node, journal: Journal) -> Namespaces:
    """Make and join two namespaces.

    Raises:
        TrialError: the kernel refused something.
    """
    made = Namespaces(node, journal)
    try:
        for _ in range(2):
            holder = node.spawn(Command(["unshare", "--net", "sleep", "infinity"]))
            made.holders.append(holder)
            start = processes.start_time(node, holder.pid)
            if start is not None:
                made.entries.append(journal.note(Kill(pid=holder.pid, start=start)))
        _held(made)
        near, far = (str(holder.pid) for holder in made.holders)
        _ip(made, None, "link", "add", CARDS[0], "netns", near, "type", "veth", "peer", "name", CARDS[1], "netns", far)
        for end, address in enumerate((NEAR, FAR)):
            _ip(made, end, "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", CARDS[end])
            _ip(made, end, "link", "set", CARDS[end], "up")
            _ip(made, end, "link", "set", "lo", "up")
    except BaseException:
        made.close()
        raise
    return made


def shape(made: Namespaces, *, rate: float | None, delay: float | None) -> None:
    """Limit the near end's sending to ``rate`` (bits/s), and hold every packet up by ``delay`` (ms) at both ends.

    Raises:
        CapabilityError: the kernel lacks the queueing discipline (sch_tbf, sch_netem), or tc is missing.
    """
    for end, card in enumerate(CARDS):
        if delay is not None:
            _tc(made, end, card, "sch_netem", "root", "handle", "1:", "netem", "delay", f"{delay:g}ms", "limit", "100000")
        if rate is not None and end == 0:
            place = ("root",) if delay is None else ("parent", "1:")
            _tc(made, end, card, "sch_tbf", *place, "tbf", "rate", f"{rate:.0f}bit", "burst", str(BURST), "latency", "50ms")


def _held(made: Namespaces) -> None:
    """Wait until the holders have their own namespaces: until then they share ours."""
    own = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + _HOLD_SECONDS
    while True:
        if not made.alive:
            raise TrialError("a network namespace could not be made: its process ended")
        if all(os.readlink(f"/proc/{holder.pid}/ns/net") != own for holder in made.holders):
            return
        if time.monotonic() > deadline:
            raise TrialError(f"a network namespace was not made within {_HOLD_SECONDS:.0f} s")
        time.sleep(0.005)


def _ip(made: Namespaces, end: int | None, *words: str) -> None:
    prefix = () if end is None else made.inside(end)
    done = made.node.run(Command([*prefix, "ip", *words]))
    if done.code != 0:
        raise TrialError(f"ip {' '.join(words)}: {done.err.strip()}")


def _tc(made: Namespaces, end: int, card: str, module: str, *words: str) -> None:
    if shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        raise CapabilityError("tc is missing, which shapes a link; install iproute2")
    done = made.node.run(Command([*made.inside(end), "tc", "qdisc", "add", "dev", card, *words]))
    if done.code != 0:
        raise CapabilityError(f"this kernel does not shape a link so ({done.err.strip().splitlines()[0]}): it needs {module}")
