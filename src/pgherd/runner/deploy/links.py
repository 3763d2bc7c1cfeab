"""Links as targets: to an iperf3 server that is there, between two hosts of a cluster, or between two network namespaces whose ends are
both ours."""

from __future__ import annotations

from pgherd.host import namespaces, processes
from pgherd.host.namespaces import Namespaces
from pgherd.host.undo import Kill
from pgherd.model.deployment import Link
from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.node.protocol import Command, Process
from pgherd.runner.deploy.link_servers import LinkServers, await_listening
from pgherd.runner.deploy.stage import NO_ROOM, Reach
from pgherd.runner.session import Session


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
