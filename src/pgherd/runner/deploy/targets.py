"""Targets that are no databases: volumes, hosts, and what else a load can drive. What reaches them needs no server.

A new kind of target is a class with the methods of ``TargetKind`` and a line in ``Targets``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgherd.drivers import fio
from pgherd.host import namespaces, processes
from pgherd.host.namespaces import Namespaces
from pgherd.host.undo import Kill
from pgherd.metrics.sampler import ProcessView, View
from pgherd.model.errors import TrialError
from pgherd.model.link import Link
from pgherd.model.load import Load, Script
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node, Process
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room

NO_ROOM = Room("")
"""Where a target stands that is in no container: its driver runs as it is."""


@dataclass(frozen=True)
class Reach:
    """How a driver reaches one target, and which room it stands in.

    A database has an address, and ``environment`` for libpq where a socket is not all; a volume a ``directory``; the far
    end of a link a ``host`` and ``port``. ``prefix`` stands before the driver's own command line (to enter a network
    namespace); ``privileged`` drivers run as we do, not under the servers' account, because the prefix needs it. ``outside`` is the
    way for a driver that does not stand in the target's room, where that is another: into a guest.
    """

    room: Room
    bin: str = ""
    host: str = ""
    port: int = 0
    database: str = ""
    user: str = ""
    scale: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    prefix: tuple[str, ...] = ()
    privileged: bool = False
    outside: Reach | None = None


class Stage(Protocol):
    """A deployment that is up on one node."""

    account: str | None

    def reach(self, target: str) -> Reach:
        """The way to a target of the deployment."""
        ...

    def guests(self) -> Mapping[str, Room]:
        """The rooms that are machines of their own, by container: each has a node and a clock."""
        ...

    def script(self, script: Script) -> Script:
        """The same script where the drivers' account can read it."""
        ...

    def view(self) -> View:
        """All containers and servers that can be watched."""
        ...

    def check(self) -> None:
        """Raise TrialError, with the server's last words, when a server has died."""
        ...

    def said(self, target: str) -> str:
        """What there is to say of the target's server when its driver has failed, such as the last lines of its log."""
        ...


class TargetKind(Protocol):
    """All targets of one kind of a run: brought about for each trial, reached by drivers, let go at the end."""

    def apply(self, trial: Trial) -> str | None:
        """Bring about what the trial's targets of this kind need, keeping what is there already; words for the trial's
        record, or None where nothing was done.

        Raises:
            TrialError: it cannot be had.
            CapabilityError: this host cannot have it at all.
        """
        ...

    def reach(self, target: str) -> Reach | None:
        """The way to a target of the trial; None where it is none of this kind."""
        ...

    def check(self) -> None:
        """Raise TrialError where what ``apply`` brought about is gone."""
        ...

    def said(self, target: str) -> str | None:
        """What there is to say of a target whose driver has failed; None where it is none of this kind."""
        ...

    def readings(self) -> dict[str, dict[str, float]]:
        """What was read once of the targets, by entity and metric: it goes beside the sampled metrics of every phase."""
        ...

    def close(self) -> None:
        """Let go of everything; what must outlive a kill is in the journal."""
        ...


class HostTargets:
    """Hosts as targets, for drivers that only need a machine. They are there."""

    def __init__(self) -> None:
        """No host is known until a trial names it."""
        self._reaches: dict[str, Reach] = {}

    def apply(self, trial: Trial) -> str | None:
        """Nothing to do: the hosts are there."""
        loads = [load for phase in trial.phases for load in phase.loads.values()]
        privileged = any(load.options.get("privileged") == "1" for load in loads)
        self._reaches = {host.name: Reach(NO_ROOM, privileged=privileged) for host in trial.deployment.hosts}
        return None

    def reach(self, target: str) -> Reach | None:
        """On the node itself."""
        return self._reaches.get(target)

    def check(self) -> None:
        """A host that were gone would say nothing."""

    def said(self, target: str) -> str | None:
        """Its driver's own words are all there is."""
        return "see its output" if target in self._reaches else None

    def readings(self) -> dict[str, dict[str, float]]:
        """The samplers watch hosts."""
        return {}

    def close(self) -> None:
        """Nothing was made."""


class VolumeTargets:
    """Volumes as targets: a load on one has a directory of this run on it, which goes with the run."""

    def __init__(self, session: Session, volumes: Volumes, watcher: Watcher) -> None:
        """``volumes`` are shared with the servers that lie on some of them."""
        self._session, self._volumes, self._watcher = session, volumes, watcher
        self._reaches: dict[str, Reach] = {}

    def apply(self, trial: Trial) -> str | None:
        """Make the directories of the volumes that are under load in some phase, and the files that their drivers work on. What
        was written to make them is on the devices when this returns."""
        wanted = {volume.target: volume for volume in trial.deployment.volumes}
        loads: dict[str, list[Load]] = {}
        for phase in trial.phases:
            for target, load in phase.loads.items():
                if target in wanted:
                    loads.setdefault(target, []).append(load)
        made = []
        self._reaches = {}
        for name, some in loads.items():
            directory = self._volumes.directory(wanted[name])
            self._reaches[name] = Reach(NO_ROOM, directory=directory)
            if ensure_file(self._session.node, directory, some, self._session.account, self._watcher):
                made.append(name)
        return f"files on {', '.join(made)} written" if made else None

    def reach(self, target: str) -> Reach | None:
        """By its directory."""
        return self._reaches.get(target)

    @property
    def directories(self) -> dict[str, str]:
        """Target → directory of the volumes that the trial loads."""
        return {name: reach.directory for name, reach in self._reaches.items()}

    def check(self) -> None:
        """One that we have mounted is to stay mounted; any other that is gone makes its driver fail."""
        self._volumes.check()

    def said(self, target: str) -> str | None:
        """Where it lies."""
        return f"its files are in {self._reaches[target].directory}" if target in self._reaches else None

    def readings(self) -> dict[str, dict[str, float]]:
        """The samplers watch devices."""
        return {}

    def close(self) -> None:
        """Volumes go with the journal."""
        self._reaches = {}


class Targets:
    """All targets of a run that are no databases."""

    def __init__(self, session: Session, volumes: Volumes, watcher: Watcher) -> None:
        """Nothing is brought about yet."""
        self.volumes = VolumeTargets(session, volumes, watcher)
        self._links = LinkTargets(session)
        self._kinds: Sequence[TargetKind] = (self.volumes, self._links, HostTargets())

    def apply(self, trial: Trial) -> list[str]:
        """Bring about what the trial needs of each kind; words for the trial's record. Raises as ``TargetKind.apply``."""
        return [words for kind in self._kinds if (words := kind.apply(trial)) is not None]

    def reach(self, target: str) -> Reach | None:
        """The way to a target; None where there is none of that name."""
        return next((reach for kind in self._kinds if (reach := kind.reach(target)) is not None), None)

    def check(self) -> None:
        """Raise TrialError where one is gone."""
        for kind in self._kinds:
            kind.check()

    def said(self, target: str) -> str | None:
        """What there is to say of it when its driver has failed."""
        return next((words for kind in self._kinds if (words := kind.said(target)) is not None), None)

    def readings(self) -> dict[str, dict[str, float]]:
        """What was read once of all of them."""
        return {entity: values for kind in self._kinds for entity, values in kind.readings().items()}

    def views(self) -> list[ProcessView]:
        """Processes of the experiment that are no driver's: to be accounted for."""
        return self._links.servers.views()

    def rest(self) -> None:
        """A trial's phases are over: end what was up for them alone."""
        self._links.servers.stop()

    def close(self) -> None:
        """Let go of all of them."""
        for kind in self._kinds:
            kind.close()


_PATIENCE = 7200.0


def ensure_file(node: Node, directory: str, loads: Sequence[Load], account: str | None, watcher: Watcher) -> bool:
    """Make the file of fio's loads in a directory, unless it is there and large enough; whether it was written.

    Raises:
        TrialError: it cannot be written, for instance because the disk is full.
    """
    sizes = [int(load.options["size"]) for load in loads if load.driver == "fio" and load.options.get("size", "").isdigit()]
    wanted = max(sizes, default=0)
    if not wanted or wanted <= _size(node, f"{directory}/{fio.FILE}"):
        return False
    watcher.setup(f"writing a file of {format_bytes(wanted)} in {directory}")
    direct = all(load.options.get("direct", "1") == "1" for load in loads if load.driver == "fio")
    argv = fio.file_argv(directory, wanted, direct=direct)
    try:
        done = node.run(Command(argv, cwd=directory, user=account), timeout=_PATIENCE)
    except TimeoutError:
        raise TrialError(
            f"writing a file of {format_bytes(wanted)} in {directory} took more than {_PATIENCE / 3600:g} h; lower --size"
        ) from None
    if done.code != 0:
        words = " | ".join((done.err.strip() or done.out.strip()).splitlines()[-2:])
        raise TrialError(f"a file of {format_bytes(wanted)} cannot be written in {directory}: {words}")
    return True


def _size(node: Node, path: str) -> int:
    """Bytes of a file; -1 where there is none."""
    done = node.run(Command(["stat", "--format=%s", "--", path]))
    return int(done.out) if done.code == 0 and done.out.strip().isdigit() else -1


class LinkTargets:
    """All links of a run; see pgherd.runner.deploy.targets.TargetKind."""

    def __init__(self, session: Session) -> None:
        """Nothing is made yet."""
        self._session = session
        self._links: dict[str, Link] = {}
        self._made: dict[Link, tuple[Namespaces, Process]] = {}
        self._entries: dict[Link, int] = {}
        self.servers = LinkServers(session)

    def apply(self, trial: Trial) -> str | None:
        """Make the namespaces of the links that are under load, with iperf3's server at the far end; drop those not wanted. Of links
        between hosts, have the far ends that are here."""
        loaded = {target for phase in trial.phases for target in phase.loads}
        self._links = {link.target: link for link in trial.deployment.links if link.target in loaded}
        here = {host.name for host in trial.deployment.hosts}
        served = [link for link in trial.deployment.links if link.kind == "hosts" and link.name in here]
        self.servers.start(served)
        own = [link for link in self._links.values() if link.kind == "namespaces"]
        for link in [link for link in self._made if link not in own or not self._alive(link)]:
            self._drop(link)
        new = [link for link in own if link not in self._made]
        for link in new:
            self._make(link)
        if served:
            return f"serving {', '.join(link.target for link in served)}"
        return f"namespaces of {', '.join(link.name for link in new)} made" if new else None

    def reach(self, target: str) -> Reach | None:
        """By the far end's address; in a namespace the driver has to enter the near end first."""
        link = self._links.get(target)
        if link is None:
            return None
        if link.kind != "namespaces":
            return Reach(NO_ROOM, host=link.host, port=link.port)
        pair, _ = self._made[link]
        return Reach(NO_ROOM, host=namespaces.FAR, port=link.port, prefix=pair.prefix, privileged=True)

    def check(self) -> None:
        """Raise TrialError where a far end of ours has ended."""
        for link in self._made:
            if not self._alive(link):
                raise TrialError(f"the far end of link {link.name} has ended")

    def said(self, target: str) -> str | None:
        """What to look at when iperf3 fails."""
        link = self._links.get(target)
        if link is None:
            return None
        where = "in a namespace of pgherd's" if link.kind == "namespaces" else f"at {link.host} port {link.port}"
        if link.kind == "hosts":
            return (
                f"iperf3's server on host {link.name} listened {where}: is there a firewall between the hosts, or did another client come?"
            )
        return f"iperf3's server is {where}; it serves one client at a time, and iperf3 says why in its report"

    def readings(self) -> dict[str, dict[str, float]]:
        """Nothing is read once."""
        return {}

    def close(self) -> None:
        """End all that is ours."""
        self.servers.stop()
        for link in list(self._made):
            self._drop(link)

    def _alive(self, link: Link) -> bool:
        pair, server = self._made[link]
        return pair.alive and server.poll() is None

    def _make(self, link: Link) -> None:
        node, journal = self._session.node, self._session.journal
        pair = namespaces.make(node, journal)
        try:
            namespaces.shape(pair, rate=link.rate, delay=link.delay)
            argv = [*pair.inside(1), "iperf3", "--server", "--bind", namespaces.FAR, "--port", str(link.port)]
            server = node.spawn(Command(argv))
            start = processes.start_time(node, server.pid)
            if start is not None:
                self._entries[link] = journal.note(Kill(pid=server.pid, start=start))
            self._made[link] = (pair, server)
            await_listening(node, server, pair.holders[1].pid, namespaces.FAR, link.port, link.name)
        except BaseException:
            if link in self._made:
                self._drop(link)
            else:
                pair.close()
            raise

    def _drop(self, link: Link) -> None:
        pair, server = self._made.pop(link)
        server.signal(9)
        server.wait(10)
        entry = self._entries.pop(link, None)
        if entry is not None:
            self._session.journal.done(entry)
        pair.close()


READY_SECONDS = 5.0
_LISTEN = "0A"
"""A socket's state in these tables."""
ENTITY = "platform:iperf3"
"""What the servers' CPU is accounted under: it is the experiment's, though no driver's."""


@dataclass(frozen=True)
class _Server:
    process: Process
    entry: int | None


class LinkServers:
    """All far ends that are up on this host."""

    def __init__(self, session: Session) -> None:
        """None is up yet."""
        self._session = session
        self._up: dict[str, _Server] = {}

    def start(self, links: Sequence[Link]) -> None:
        """Have a server for each of these links, and for no other.

        Raises:
            TrialError: one does not listen, with its own words.
        """
        self.stop()
        for link in links:
            self._start(link)

    def stop(self) -> None:
        """End all of them."""
        for target in list(self._up):
            server = self._up.pop(target)
            server.process.signal(9)
            server.process.wait(10)
            if server.entry is not None:
                self._session.journal.done(server.entry)

    def views(self) -> list[ProcessView]:
        """Their processes, to be accounted for."""
        return [ProcessView(ENTITY, server.process.pid) for server in self._up.values()]

    def _start(self, link: Link) -> None:
        node = self._session.node
        words = str(self._session.work / f"iperf3-{link.near}.txt")
        argv = ["iperf3", "--server", "--one-off", "--bind", link.host, "--port", str(link.port)]
        process = node.spawn(Command(argv, user=self._session.account, stderr=words))
        start = processes.start_time(node, process.pid)
        entry = None if start is None else self._session.journal.note(Kill(pid=process.pid, start=start))
        self._up[link.target] = _Server(process, entry)
        try:
            await_listening(node, process, process.pid, link.host, link.port, link.target, user=self._session.account)
        except TrialError as error:
            said = node.read(words).decode(errors="replace").strip().splitlines()
            raise TrialError(f"{error} ({' | '.join(said[-2:]) or 'it said nothing'}); --port names another port") from None


def await_listening(node: Node, server: Process, pid: int, address: str, port: int, link: str, *, user: str | None = None) -> None:
    """Wait until a link's server, which runs as ``user``, listens at its address with a socket of its own, as the tables of TCP sockets
    of ``pid``'s network show it: a stranger's socket at that address is none.

    Raises:
        TrialError: it ended, or does not listen within READY_SECONDS.
    """
    deadline = time.monotonic() + READY_SECONDS
    entry = socket_entry(address, port)
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise TrialError(f"iperf3's server of link {link} at {address} port {port} ended with code {server.poll()}")
        listening = _listening(node, pid, entry)
        if listening and listening & _sockets(node, server.pid, user):
            return
        time.sleep(0.01)
    raise TrialError(f"iperf3's server of link {link} did not listen at {address} port {port} within {READY_SECONDS:.0f} s")


def _listening(node: Node, pid: int, entry: str) -> set[str]:
    """The sockets that listen at an address in ``pid``'s network, as links to open files name them: ``socket:[INODE]`` (proc(5))."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in node.read(f"/proc/{pid}/net/{table}").decode().splitlines()[1:]]
            found |= {f"socket:[{row[9]}]" for row in rows if row[1] == entry and row[3] == _LISTEN}
    return found


def _sockets(node: Node, pid: int, user: str | None) -> set[str]:
    """What a process of ``user`` has open; asked as that user, since root may be denied it where it cannot trace others."""
    try:
        files = [f"/proc/{pid}/fd/{number}" for number in node.listdir(f"/proc/{pid}/fd")]
    except OSError:  # it has ended
        return set()
    return set(node.run(Command(["readlink", "--", *files], user=user)).out.splitlines())


def socket_entry(address: str, port: int) -> str:
    """How /proc/net/tcp and tcp6 write an address: words of four bytes in this machine's order, in hexadecimal digits (proc(5))."""
    packed = ipaddress.ip_address(_resolved(address, port)[-1][0]).packed
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def refusal(address: str, port: int) -> OSError | None:
    """Why no server of ours could listen there on this host, tried for a moment; None where one could."""
    try:
        family, kind, protocol, _, at = _resolved(address, port)
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(at)
            tried.listen(1)
    except OSError as error:
        return error
    return None


def _resolved(address: str, port: int) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]:
    return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
