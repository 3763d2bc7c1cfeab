"""Endpoints by which drivers reach targets, and the targets that are not databases: volumes, hosts and network links.

A new kind of target is a class with the methods of ``TargetKind`` and an entry in ``Targets``.
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
from pgherd.host import netns, processes
from pgherd.host.netns import Namespaces
from pgherd.host.undo_actions import Kill
from pgherd.metrics.sampler import ProcessView, SamplingView
from pgherd.model.deployment import Deployment, Link
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Script
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node, Process
from pgherd.runner.deploy.volumes import Volumes, used_by
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle

NO_CONTAINER = ContainerHandle("")
"""Handle of a target outside all containers: its driver runs without isolation."""


@dataclass(frozen=True)
class TargetEndpoint:
    """Endpoint of one target for its driver, and the handle of the target's container.

    A database has an address, and ``environment`` for libpq if a socket is not enough. A volume has a ``directory``, as has a database
    that fio loads.
    The far end of a link has ``host`` and ``port``. ``prefix`` precedes the driver's command line, for example to
    enter a network namespace. A ``privileged`` driver runs as pgherd's user instead of the servers' user, because the
    prefix requires it. ``outside`` is the endpoint for a driver outside the target's container, if it differs, as for a
    guest.
    """

    handle: ContainerHandle
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
    outside: TargetEndpoint | None = None


class TargetResolver(Protocol):
    """Running deployment on one node."""

    account: str | None

    def endpoint(self, target: str) -> TargetEndpoint:
        """Return the endpoint of a target of the deployment."""
        ...

    def guests(self) -> Mapping[str, ContainerHandle]:
        """Return the container handles of virtual machines, by container. Each has a node and a clock."""
        ...

    def try_memory(self, container: str, memory: int) -> bool:
        """Attempt to set a container's memory limit (bytes) while it runs. Return False if too much is in use. Raises CapabilityError."""
        ...

    def script(self, script: Script) -> Script:
        """Return a copy of the script that the drivers' user can read."""
        ...

    def view(self) -> SamplingView:
        """Return the containers and servers that can be sampled."""
        ...

    def check(self) -> None:
        """Raise TrialError, with the end of its log, if a server has died."""
        ...

    def error_text(self, target: str) -> str:
        """Describe the target's server after its driver failed, for example by the end of its log."""
        ...


class TargetKind(Protocol):
    """All targets of one kind in a run: prepared for each trial, reached by drivers, released at the end."""

    def apply(self, trial: Trial) -> str | None:
        """Prepare the trial's targets of this kind and keep those that exist already.

        Returns a note for the trial's record, or None if nothing was done.

        Raises:
            TrialError: a target cannot be prepared.
            CapabilityError: this host cannot provide such a target at all.
        """
        ...

    def endpoint(self, target: str) -> TargetEndpoint | None:
        """Return the endpoint of a target of the trial, or None if it is of a different kind."""
        ...

    def check(self) -> None:
        """Raise TrialError if something that ``apply`` prepared is gone."""
        ...

    def error_text(self, target: str) -> str | None:
        """Describe a target whose driver failed. Return None if it is of a different kind."""
        ...

    def readings(self) -> dict[str, dict[str, float]]:
        """Return values read once, by entity and metric. They are stored with the sampled metrics of every phase."""
        ...

    def close(self) -> None:
        """Release all resources. The journal has the changes to undo after a kill."""
        ...


class HostTargets:
    """Hosts as targets, for drivers that only need a machine. They need no preparation."""

    def __init__(self) -> None:
        self._reaches: dict[str, TargetEndpoint] = {}

    def apply(self, trial: Trial) -> str | None:
        loads = [load for phase in trial.phases for load in phase.loads.values()]
        privileged = any(load.options.get("privileged") == "1" for load in loads)
        self._reaches = {host.name: TargetEndpoint(NO_CONTAINER, privileged=privileged) for host in trial.deployment.hosts}
        return None

    def endpoint(self, target: str) -> TargetEndpoint | None:
        return self._reaches.get(target)

    def check(self) -> None:
        """Do nothing, because a lost external host cannot be detected here."""

    def error_text(self, target: str) -> str | None:
        return "see its output" if target in self._reaches else None

    def readings(self) -> dict[str, dict[str, float]]:
        return {}

    def close(self) -> None:
        """Nothing was prepared."""


class VolumeTargets:
    """Volumes as targets. A loaded volume has a directory of this run, which is removed with the run.

    A fio load of a database has one too, on the device of the database's data. The load runs in the database's container.
    """

    def __init__(self, session: RunSession, volumes: Volumes, watcher: RunObserver) -> None:
        """Args:
        volumes: shared with the servers that have files on some of them.
        """
        self._session, self._volumes, self._watcher = session, volumes, watcher
        self._reaches: dict[str, TargetEndpoint] = {}
        self._of_databases: dict[str, str] = {}

    def apply(self, trial: Trial) -> str | None:
        """Create the directories of the loaded volumes and databases, and the files that their drivers use.

        These files are on the devices when this returns.
        """
        volumes = {volume.target: volume for volume in trial.deployment.volumes}
        databases = set(trial.deployment.addresses())
        loads: dict[str, list[Load]] = {}
        for phase in trial.phases:
            for target, load in phase.loads.items():
                if target in volumes or (load.driver == "fio" and target in databases):
                    loads.setdefault(target, []).append(load)
        written = []
        self._reaches, self._of_databases = {}, {}
        for name, target_loads in loads.items():
            if name in volumes:
                directory = self._volumes.directory(volumes[name])
                self._reaches[name] = TargetEndpoint(NO_CONTAINER, directory=directory)
            else:
                directory = self._of_databases[name] = self._next_to_data(trial.deployment, name)
            if ensure_file(self._session.node, directory, target_loads, self._session.account, self._watcher):
                written.append(name)
        return f"files on {', '.join(written)} written" if written else None

    def _next_to_data(self, deployment: Deployment, target: str) -> str:
        """Return a directory on the device of a database's data."""
        server = next(server for address, _, _, server, _ in deployment.databases() if str(address) == target)
        volume = used_by(server, deployment).get("data")
        if volume is not None:
            return self._volumes.directory(volume)
        directory = f"{self._session.work}/load"
        self._session.node.make_dir(directory, mode=0o700, user=self._session.account)
        return directory

    def endpoint(self, target: str) -> TargetEndpoint | None:
        return self._reaches.get(target)

    def of_database(self, target: str) -> str:
        """Return the directory for the files of a database's driver, or '' if it has none."""
        return self._of_databases.get(target, "")

    @property
    def directories(self) -> dict[str, str]:
        """Return target → directory of the loaded volumes."""
        return {name: reach.directory for name, reach in self._reaches.items()}

    def check(self) -> None:
        """Only volumes mounted by this run are checked. If a different one is gone, its driver fails."""
        self._volumes.check()

    def error_text(self, target: str) -> str | None:
        return f"its files are in {self._reaches[target].directory}" if target in self._reaches else None

    def readings(self) -> dict[str, dict[str, float]]:
        return {}

    def close(self) -> None:
        """The journal removes the directories."""
        self._reaches, self._of_databases = {}, {}


class Targets:
    """All targets of a run that are not databases."""

    def __init__(self, session: RunSession, volumes: Volumes, watcher: RunObserver) -> None:
        self.volumes = VolumeTargets(session, volumes, watcher)
        self._links = LinkTargets(session)
        self._kinds: Sequence[TargetKind] = (self.volumes, self._links, HostTargets())

    def apply(self, trial: Trial) -> list[str]:
        """Prepare the trial's targets and return notes for its record. Raises as ``TargetKind.apply``."""
        return [note for kind in self._kinds if (note := kind.apply(trial)) is not None]

    def endpoint(self, target: str) -> TargetEndpoint | None:
        """Return the endpoint of a target, or None if there is none of that name."""
        return next((reach for kind in self._kinds if (reach := kind.endpoint(target)) is not None), None)

    def check(self) -> None:
        for kind in self._kinds:
            kind.check()

    def error_text(self, target: str) -> str | None:
        return next((description for kind in self._kinds if (description := kind.error_text(target)) is not None), None)

    def readings(self) -> dict[str, dict[str, float]]:
        return {entity: values for kind in self._kinds for entity, values in kind.readings().items()}

    def views(self) -> list[ProcessView]:
        """Return processes of the experiment that are not drivers, for CPU accounting."""
        return self._links.servers.views()

    def stop_phase_targets(self) -> None:
        """Stop what ran only for the phases of the trial."""
        self._links.servers.stop()

    def close(self) -> None:
        for kind in self._kinds:
            kind.close()


_WRITE_TIMEOUT_S = 7200.0


def ensure_file(node: Node, directory: str, loads: Sequence[Load], account: str | None, watcher: RunObserver) -> bool:
    """Write the file of fio's loads in a directory, unless it exists and is large enough. Return whether it was written.

    A sparse file has no blocks: reading it reaches no device, and the first write has to allocate space. So the file
    is written completely before the first trial that needs it, with incompressible data, and past the page cache if
    the file system allows it.

    Raises:
        TrialError: it cannot be written, for example because the disk is full.
    """
    sizes = [int(load.options["size"]) for load in loads if load.driver == "fio" and load.options.get("size", "").isdigit()]
    size = max(sizes, default=0)
    if not size or size <= _file_bytes(node, f"{directory}/{fio.FILE}"):
        return False
    watcher.setup(f"writing a file of {format_bytes(size)} in {directory}")
    direct = all(load.options.get("direct", "1") == "1" for load in loads if load.driver == "fio")
    fill = Command(fio.file_argv(directory, size, direct=direct), cwd=directory, user=account, can_be_called_off=True)
    try:
        result = node.run(fill, timeout=_WRITE_TIMEOUT_S)
    except TimeoutError:
        raise TrialError(
            f"writing a file of {format_bytes(size)} in {directory} took more than {_WRITE_TIMEOUT_S / 3600:g} h; lower --file-size"
        ) from None
    if result.code != 0:
        # It may have its full size if its last blocks could not be written to disk.
        node.run(Command(["rm", "-f", "--", f"{directory}/{fio.FILE}"], user=account))
        reason = " | ".join((result.err.strip() or result.out.strip()).splitlines()[-2:])
        raise TrialError(f"a file of {format_bytes(size)} cannot be written in {directory}: {reason}")
    return True


def _file_bytes(node: Node, path: str) -> int:
    """Return the size of a file, or -1 if it does not exist."""
    result = node.run(Command(["stat", "--format=%s", "--", path]))
    return int(result.out) if result.code == 0 and result.out.strip().isdigit() else -1


class LinkTargets:
    """Network links as targets, as ``TargetKind``.

    A link leads to an existing iperf3 server, to a host of the cluster, or from one network namespace of this run to
    another.
    """

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._links: dict[str, Link] = {}
        self._pairs: dict[Link, tuple[Namespaces, Process]] = {}
        self._entries: dict[Link, int] = {}
        self.servers = LinkServers(session)

    def apply(self, trial: Trial) -> str | None:
        """Create the namespaces of the loaded links, with an iperf3 server at the far end, and drop the others.

        For links between hosts, start the far ends that are on this host.
        """
        loaded = {target for phase in trial.phases for target in phase.loads}
        self._links = {link.target: link for link in trial.deployment.links if link.target in loaded}
        local_hosts = {host.name for host in trial.deployment.hosts}
        served = [link for link in trial.deployment.links if link.kind == "hosts" and link.name in local_hosts]
        self.servers.start(served)
        namespace_links = [link for link in self._links.values() if link.kind == "namespaces"]
        for link in [link for link in self._pairs if link not in namespace_links or not self._alive(link)]:
            self._drop(link)
        new = [link for link in namespace_links if link not in self._pairs]
        for link in new:
            self._make(link)
        if served:
            return f"serving {', '.join(link.target for link in served)}"
        return f"namespaces of {', '.join(link.name for link in new)} made" if new else None

    def endpoint(self, target: str) -> TargetEndpoint | None:
        """Return the far end's address. A driver for a namespace has to enter the near end first."""
        link = self._links.get(target)
        if link is None:
            return None
        if link.kind != "namespaces":
            return TargetEndpoint(NO_CONTAINER, host=link.host, port=link.port)
        pair, _ = self._pairs[link]
        return TargetEndpoint(NO_CONTAINER, host=netns.FAR, port=link.port, prefix=pair.prefix, privileged=True)

    def check(self) -> None:
        for link in self._pairs:
            if not self._alive(link):
                raise TrialError(f"the far end of link {link.name} has ended")

    def error_text(self, target: str) -> str | None:
        link = self._links.get(target)
        if link is None:
            return None
        location = "in a namespace of this run" if link.kind == "namespaces" else f"at {link.host} port {link.port}"
        if link.kind == "hosts":
            return f"iperf3's server on host {link.name} listened {location}: check for a firewall, or another client that connected"
        return f"iperf3's server is {location}; it serves one client at a time; the reason is in iperf3's report"

    def readings(self) -> dict[str, dict[str, float]]:
        return {}

    def close(self) -> None:
        self.servers.stop()
        for link in list(self._pairs):
            self._drop(link)

    def _alive(self, link: Link) -> bool:
        pair, server = self._pairs[link]
        return pair.alive and server.poll() is None

    def _make(self, link: Link) -> None:
        node, journal = self._session.node, self._session.journal
        pair = netns.make(node, journal)
        try:
            netns.shape(pair, rate=link.rate, delay=link.delay)
            argv = [*pair.inside(1), "iperf3", "--server", "--bind", netns.FAR, "--port", str(link.port)]
            server = node.spawn(Command(argv))
            start = processes.start_time(node, server.pid)
            if start is not None:
                self._entries[link] = journal.note(Kill(pid=server.pid, start=start))
            self._pairs[link] = (pair, server)
            await_listening(node, server, pair.holders[1].pid, netns.FAR, link.port, link.name)
        except BaseException:
            if link in self._pairs:
                self._drop(link)
            else:
                pair.close()
            raise

    def _drop(self, link: Link) -> None:
        pair, server = self._pairs.pop(link)
        server.signal(9)
        server.wait(10)
        entry = self._entries.pop(link, None)
        if entry is not None:
            self._session.journal.done(entry)
        pair.close()


READY_TIMEOUT_S = 5.0
_LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""
ENTITY = "platform:iperf3"
"""Entity of the servers' CPU. They belong to the experiment, but are not drivers."""


@dataclass(frozen=True)
class _Iperf3Server:
    process: Process
    entry: int | None


class LinkServers:
    """iperf3 servers of this host for links between hosts of a cluster.

    iperf3 has no authentication. So a server listens only on the address by which the cluster knows this host, serves
    one test (``--one-off``), starts before its trial and ends after it. It dies with this process, and has a journal
    entry.
    """

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._up: dict[str, _Iperf3Server] = {}

    def start(self, links: Sequence[Link]) -> None:
        """Start a server for each of these links, and stop all others.

        Raises:
            TrialError: a server does not listen; the message includes its output.
        """
        self.stop()
        for link in links:
            self._start(link)

    def stop(self) -> None:
        for target in list(self._up):
            server = self._up.pop(target)
            server.process.signal(9)
            server.process.wait(10)
            if server.entry is not None:
                self._session.journal.done(server.entry)

    def views(self) -> list[ProcessView]:
        """Return the servers' processes, for CPU accounting."""
        return [ProcessView(ENTITY, server.process.pid) for server in self._up.values()]

    def _start(self, link: Link) -> None:
        node = self._session.node
        error_file = str(self._session.work / f"iperf3-{link.near}.txt")
        argv = ["iperf3", "--server", "--one-off", "--bind", link.host, "--port", str(link.port)]
        process = node.spawn(Command(argv, user=self._session.account, stderr=error_file))
        start = processes.start_time(node, process.pid)
        entry = None if start is None else self._session.journal.note(Kill(pid=process.pid, start=start))
        self._up[link.target] = _Iperf3Server(process, entry)
        try:
            await_listening(node, process, process.pid, link.host, link.port, link.target, user=self._session.account)
        except TrialError as error:
            messages = node.read_end(error_file).after(0).strip().splitlines()
            raise TrialError(f"{error} ({' | '.join(messages[-2:]) or 'no output'}); choose a different port with --port") from None


def await_listening(node: Node, server: Process, pid: int, address: str, port: int, link: str, *, user: str | None = None) -> None:
    """Wait until a link's server, which runs as ``user``, listens at its address with a socket of its process.

    The sockets are read from the TCP tables of ``pid``'s network namespace. A foreign process that listens there does
    not count.

    Raises:
        TrialError: the server ended, or does not listen within READY_TIMEOUT_S.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    entry = socket_entry(address, port)
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise TrialError(f"iperf3's server of link {link} at {address} port {port} ended with code {server.poll()}")
        listening = _listening(node, pid, entry)
        if listening and listening & _sockets(node, server.pid, user):
            return
        time.sleep(0.01)
    raise TrialError(f"iperf3's server of link {link} did not listen at {address} port {port} within {READY_TIMEOUT_S:.0f} s")


def _listening(node: Node, pid: int, entry: str) -> set[str]:
    """Return sockets that listen at an address in ``pid``'s network, as ``socket:[INODE]`` like links to open files
    (proc(5)).
    """
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in node.read(f"/proc/{pid}/net/{table}").decode().splitlines()[1:]]
            sockets |= {f"socket:[{row[9]}]" for row in rows if row[1] == entry and row[3] == _LISTEN}
    return sockets


def _sockets(node: Node, pid: int, user: str | None) -> set[str]:
    """Return the open files of a process, read as its ``user``, since root may lack permission to trace other users."""
    try:
        files = [f"/proc/{pid}/fd/{number}" for number in node.listdir(f"/proc/{pid}/fd")]
    except OSError:  # the process has ended
        return set()
    return set(node.run(Command(["readlink", "--", *files], user=user)).out.splitlines())


def socket_entry(address: str, port: int) -> str:
    """Return an address as /proc/net/tcp and tcp6 print it: four-byte words in this machine's byte order, in hexadecimal
    (proc(5)).
    """
    packed = ipaddress.ip_address(_resolved(address, port)[-1][0]).packed
    words = [int.from_bytes(packed[offset : offset + 4], sys.byteorder) for offset in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def refusal(address: str, port: int) -> OSError | None:
    """Return the error by which a server cannot listen there on this host, or None. Binds the address for a moment."""
    try:
        family, kind, protocol, _, socket_address = _resolved(address, port)
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(socket_address)
            probe.listen(1)
    except OSError as error:
        return error
    return None


def _resolved(address: str, port: int) -> tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]:
    return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
