"""Where the data of this host's servers lie: clones of golden copies in the run's directory or on volumes, and what lies apart."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from pgherd.host.paths import free_ports
from pgherd.model.deployment import Container, Server
from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones, golden
from pgherd.postgres.disk import patience
from pgherd.postgres.golden import Golden
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.deploy.volumes import Volumes, spread_over, used_by
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.workloads.registry import fillings

PORT = 5432
_KILLED_SECONDS = 5.0
"""How long a process that was killed is waited for; in a write to a disk that hangs it ends when that does."""


class Goldens:
    """The golden copies of a run's servers, each made when it is first needed."""

    def __init__(self, session: Session, installations: Mapping[str, Installation], watcher: Watcher) -> None:
        """``installations`` maps bin directories, as trials name them, to what runs them."""
        self._session, self._installations, self._watcher = session, installations, watcher
        self._made: dict[str, Golden] = {}

    def of(self, server: Server) -> Golden:
        """The copy that holds what this server is to hold; raises as ``golden.ensure``."""
        key = f"{server.bin} {server.checksums} " + "".join(database.model_dump_json() for database in server.databases)
        if key not in self._made:
            node, account = self._session.node, self._session.account
            sockets = self._session.sockets / "golden"
            node.make_dir(str(sockets), mode=0o700, user=account)
            self._made[key] = golden.ensure(
                node,
                self._installations[server.bin],
                fillings(node, server.databases),
                account=account,
                cache_dir=str(self._session.cache),
                socket_dir=str(sockets),
                checksums=server.checksums,
                say=self._watcher.setup,
            )
        return self._made[key]


class Housing:
    """The homes of the servers that share this host's kernel: a directory each, below the session's work directory or on a volume."""

    def __init__(
        self, session: Session, installations: Mapping[str, Installation], goldens: Goldens, volumes: Volumes, watcher: Watcher
    ) -> None:
        """Nothing lies anywhere yet."""
        self._node: Node = session.node
        self._session, self._installations, self._goldens = session, installations, goldens
        self._volumes, self._watcher = volumes, watcher
        self._elsewhere: dict[ServerKey, tuple[str, ...]] = {}
        self._names = itertools.count(1)
        self._ports: set[int] = set()

    def restore(self, wanted: Mapping[ServerKey, tuple[Container, Server]], trial: Trial, tight: bool) -> dict[ServerKey, Instance]:
        """Copy each server's golden copy to a new home; the servers, not started. ``tight``: memory is overcommitted, so that what
        the copies leave in the page cache must go.

        Raises:
            TrialError: a golden copy or a clone cannot be made.
            CapabilityError: there is too little disk.
        """
        found: dict[ServerKey, Instance] = {}
        try:
            self._copy(wanted, trial, tight, found)
            for key, (_, server) in wanted.items():
                self._place(key, found[key], server, trial)
        except BaseException:  # what is half made must not fill a disk that may be full
            for key, instance in found.items():
                self.remove(key, instance)
            raise
        return found

    @contextlib.contextmanager
    def settling(self, restored: Mapping[ServerKey, tuple[Instance, Server]]) -> Iterator[None]:
        """Write to disk what was copied for these servers, lest it be written during the first trial, while the body starts them; then
        wait until it is there, for as long as their bytes may take a slow disk.

        Raises:
            TrialError: it hangs.
        """
        if not restored:
            yield
            return
        homes = [one.data_dir for one, _ in restored.values()]
        elsewhere = [directory for key in restored for directory in self._elsewhere.get(key, ())]
        process = self._node.spawn(Command(["sync", "-f", "--", homes[0], *elsewhere]))
        try:
            yield
            size = sum(self._goldens.of(server).bytes for _, server in restored.values())
            try:
                process.wait(patience(size))
            except TimeoutError:
                raise TrialError(
                    f"the copies for {len(restored)} servers ({format_bytes(size)}) were not on the disk after "
                    f"{format_seconds(patience(size))}; look what else writes to it, or use a smaller --scale"
                ) from None
        except BaseException:
            process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                process.wait(_KILLED_SECONDS)
            raise

    def files(self, instances: Mapping[ServerKey, Instance]) -> list[str]:
        """All directories in which these servers' files lie."""
        return [path for key, one in instances.items() for path in (one.data_dir, *self._elsewhere.get(key, ()))]

    def remove(self, key: ServerKey, instance: Instance | None) -> None:
        """Take a stopped server's home away."""
        if instance is not None:
            self._ports.discard(instance.port)
            self._node.remove_tree(str(Path(instance.data_dir).parent))
        self._volumes.remove(self._elsewhere.pop(key, ()))

    def _copy(
        self, wanted: Mapping[ServerKey, tuple[Container, Server]], trial: Trial, tight: bool, found: dict[ServerKey, Instance]
    ) -> None:
        jobs: list[tuple[Golden, str]] = []
        opening = self._session.opening
        # A server that is being restarted does not hold its port, but comes back to it.
        ports = [PORT] * len(wanted) if opening is None else free_ports(opening.address, len(wanted), self._ports)
        for port, (key, (container, server)) in zip(ports, wanted.items(), strict=True):
            copy = self._goldens.of(server)
            number = next(self._names)
            home = self._home(f"{number:03d}-{container.name}-{server.name}", server, trial)
            sockets = self._session.sockets / f"{number:03d}"
            self._node.make_dir(str(home), mode=0o711)
            self._node.make_dir(str(sockets), mode=0o700, user=self._session.account)
            found[key] = Instance(
                node=self._node,
                installation=self._installations[server.bin],
                data_dir=str(home / "data"),
                socket_dir=str(sockets),
                port=port,
                opening=opening,
                account=self._session.account,
                name=f"{container.name}/{server.name}",
            )
            self._ports.add(port)
            jobs.append((copy, str(home / "data")))
        if jobs:
            size = format_bytes(sum(copy.bytes for copy, _ in jobs))
            self._watcher.setup(f"copying {len(jobs)} databases ({size})")
            clones.clone_all(self._node, jobs, self._session.account)
            # A server whose buffers do not hold its databases lives on the page cache: what the copy left there would be
            # memory that no container is charged for.
            settings = [server.settings for _, server in wanted.values()]
            uncached = [path for (copy, path), own in zip(jobs, settings, strict=True) if tight or not clones.cached(copy, own)]
            clones.drop_cache(self._node, uncached)

    def _home(self, name: str, server: Server, trial: Trial) -> Path:
        """The directory of a server's data: on a volume of its own, or in the run's."""
        volume = used_by(server, trial.deployment).get("data")
        return self._session.work / name if volume is None else Path(self._volumes.home(volume, name))

    def _place(self, key: ServerKey, instance: Instance, server: Server, trial: Trial) -> None:
        """Move what is to lie apart from the work directory."""
        if server.volumes or server.tablespaces:
            data, spaces = instance.data_dir, spread_over(server, trial.deployment)
            self._elsewhere[key] = self._volumes.place(used_by(server, trial.deployment), data, Path(data).parent.name, spaces)
