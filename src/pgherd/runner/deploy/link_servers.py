"""The far ends of links between a cluster's hosts: an iperf3 server for each link of a trial that leads to this host.

iperf3 asks nobody for a password. So a server listens on the one address by which the cluster knows this host, serves one test
(``--one-off``), is started before its trial and ended after it, whatever came of that; it dies with us, and stands in the journal.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.host import processes
from pgherd.host.undo import Kill
from pgherd.metrics.sampler import ProcessView
from pgherd.model.deployment import Link
from pgherd.model.errors import TrialError
from pgherd.node.protocol import Command, Node, Process
from pgherd.runner.session import Session

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
