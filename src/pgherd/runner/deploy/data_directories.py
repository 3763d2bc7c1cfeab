"""Data directories of this host's servers: clones of templates in the run's directory or on volumes."""

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
from pgherd.postgres import clones, templates
from pgherd.postgres.disk_space import patience
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.templates import Template
from pgherd.runner.deploy.transition_plan import ServerKey
from pgherd.runner.deploy.volumes import Volumes, spread_over, used_by, wal_directories
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.workloads.registry import loaders
from pgherd.workloads.user_script import settings_of_contents

PORT = 5432
_KILL_TIMEOUT_S = 5.0
"""Wait for a killed process. If it hangs in a write, it ends only when the disk responds."""


class Templates:
    """Templates of a run's servers, each created when first needed."""

    def __init__(self, session: RunSession, installations: Mapping[str, Installation], watcher: RunObserver) -> None:
        """Args:
        installations: bin directory, as trials name it, to the installation that runs it.
        """
        self._session, self._installations, self._watcher = session, installations, watcher
        self._templates: dict[str, Template] = {}

    def of(self, server: Server) -> Template:
        """Return the template for this server's databases. Raises as ``templates.ensure``."""
        databases = "".join(database.model_dump_json() for database in server.databases)
        key = f"{server.bin} {server.checksums} {settings_of_contents(server)} {databases}"
        if key not in self._templates:
            node, account = self._session.node, self._session.account
            sockets = self._session.sockets / "template"
            node.make_dir(str(sockets), mode=0o700, user=account)
            self._templates[key] = templates.ensure(
                node,
                self._installations[server.bin],
                loaders(node, server.databases, server.settings),
                account=account,
                cache_dir=str(self._session.cache),
                socket_dir=str(sockets),
                checksums=server.checksums,
                say=self._watcher.setup,
            )
        return self._templates[key]


class DataDirectories:
    """Data directories of servers on this host's kernel: one each, in the session's work directory or on a volume."""

    def __init__(
        self, session: RunSession, installations: Mapping[str, Installation], templates: Templates, volumes: Volumes, watcher: RunObserver
    ) -> None:
        self._node: Node = session.node
        self._session, self._installations, self._templates = session, installations, templates
        self._volumes, self._watcher = volumes, watcher
        self._volume_directories: dict[ServerKey, tuple[str, ...]] = {}
        self._names = itertools.count(1)
        self._ports: set[int] = set()

    def restore(self, requested: Mapping[ServerKey, tuple[Container, Server]], trial: Trial, tight: bool) -> dict[ServerKey, Instance]:
        """Clone each server's template to a new directory. Return the servers, not started.

        If memory is overcommitted (``tight``), pages that the copies left in the page cache are dropped.

        Raises:
            TrialError: a template or a clone cannot be created.
            CapabilityError: there is too little disk space.
        """
        instances: dict[ServerKey, Instance] = {}
        try:
            self._copy(requested, trial, tight, instances)
            for key, (_, server) in requested.items():
                self._place(key, instances[key], server, trial)
            for key, instance in instances.items():
                wal = wal_directories(self._volume_directories.get(key, ()))
                clones.give(self._node, [*wal, instance.data_dir], self._session.account)
        except BaseException:  # an incomplete copy must not fill the disk
            for key, instance in instances.items():
                self.remove(key, instance)
            raise
        return instances

    @contextlib.contextmanager
    def settling(self, restored: Mapping[ServerKey, tuple[Instance, Server]]) -> Iterator[None]:
        """Sync the new data directories while the body starts the servers, so that writeback does not hit the first
        trial.

        Then wait for the sync, with a timeout in proportion to their size.

        Raises:
            TrialError: the sync did not finish in time.
        """
        if not restored:
            yield
            return
        data_directories = [instance.data_dir for instance, _ in restored.values()]
        on_volumes = [directory for key in restored for directory in self._volume_directories.get(key, ())]
        process = self._node.spawn(Command(["sync", "-f", "--", data_directories[0], *on_volumes]))
        try:
            yield
            size = sum(self._templates.of(server).bytes for _, server in restored.values())
            try:
                process.wait(patience(size))
            except TimeoutError:
                raise TrialError(
                    f"the copies for {len(restored)} servers ({format_bytes(size)}) were not on the disk after "
                    f"{format_seconds(patience(size))}; check for other processes that write to it, or use a smaller --scale"
                ) from None
        except BaseException:
            process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                process.wait(_KILL_TIMEOUT_S)
            raise

    def files(self, instances: Mapping[ServerKey, Instance]) -> list[str]:
        """Return the outermost directories with files of these servers."""
        paths = {path for key, instance in instances.items() for path in (instance.data_dir, *self._volume_directories.get(key, ()))}
        return sorted(path for path in paths if paths.isdisjoint(map(str, Path(path).parents)))

    def remove(self, key: ServerKey, instance: Instance | None) -> None:
        """Remove a stopped server's directories."""
        if instance is not None:
            self._ports.discard(instance.port)
            self._node.remove_tree(str(Path(instance.data_dir).parent))
        self._volumes.remove(self._volume_directories.pop(key, ()))

    def _copy(
        self, requested: Mapping[ServerKey, tuple[Container, Server]], trial: Trial, tight: bool, instances: dict[ServerKey, Instance]
    ) -> None:
        jobs: list[tuple[Template, str]] = []
        opening = self._session.opening
        # The port of a server that is restarting is free for a moment, but still taken.
        ports = [PORT] * len(requested) if opening is None else free_ports(opening.address, len(requested), self._ports)
        for port, (key, (container, server)) in zip(ports, requested.items(), strict=True):
            template = self._templates.of(server)
            number = next(self._names)
            home = self._home(f"{number:03d}-{container.name}-{server.name}", server, trial)
            sockets = self._session.sockets / f"{number:03d}"
            self._node.make_dir(str(home), mode=0o711)
            self._node.make_dir(str(sockets), mode=0o700, user=self._session.account)
            instances[key] = Instance(
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
            jobs.append((template, str(home / "data")))
        if jobs:
            size = format_bytes(sum(template.bytes for template, _ in jobs))
            self._watcher.setup(f"copying {len(jobs)} databases ({size})")
            clones.clone_all(self._node, jobs, None, check_cancelled=self._watcher.check_cancelled)
            # If a server's buffers are smaller than its databases, it relies on the page cache. Pages that the copy left there
            # would be memory for which no container is charged.
            servers = [server for _, server in requested.values()]
            uncached = [
                path
                for (template, path), server in zip(jobs, servers, strict=True)
                if tight or not clones.cached(template, server.settings)
            ]
            clones.drop_cache(self._node, uncached)

    def _home(self, name: str, server: Server, trial: Trial) -> Path:
        """Return the directory of a server's data, on its volume or in the run's directory."""
        volume = used_by(server, trial.deployment).get("data")
        return self._session.work / name if volume is None else Path(self._volumes.home(volume, name))

    def _place(self, key: ServerKey, instance: Instance, server: Server, trial: Trial) -> None:
        """Move the parts of the cluster that belong on volumes."""
        if server.volumes or server.tablespaces:
            data, spaces = instance.data_dir, spread_over(server, trial.deployment)
            self._volume_directories[key] = self._volumes.place(used_by(server, trial.deployment), data, Path(data).parent.name, spaces)
