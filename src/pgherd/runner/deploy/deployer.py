"""Running servers of this node, and the steps from their present state to the deployment of a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pgherd.host import cpus, processes
from pgherd.host.undo_actions import Kill, ReleaseSharedMemory
from pgherd.metrics import sampler
from pgherd.metrics.sampler import CgroupView, ContainerView, ProcessView, SamplingView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, Deployment, Host, Server
from pgherd.model.errors import TrialError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import OomKill
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.postgres import clones
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, Launch, StopMode, start_all, stop_all
from pgherd.postgres.settings import reload_or_restart
from pgherd.postgres.settings_validation import contexts
from pgherd.runner.deploy import tracked_processes
from pgherd.runner.deploy.data_directories import DataDirectories, Templates
from pgherd.runner.deploy.guests import BootedGuest, Guests
from pgherd.runner.deploy.huge_pages import HugePageManager
from pgherd.runner.deploy.memory_budget import MemoryBudget
from pgherd.runner.deploy.servers import (
    ExternalServers,
    MemoryKills,
    Readings,
    autovacuum_runs,
    buffer_readings,
    increase,
    log_ending,
    memory_kill_message,
    merge_readings,
    require_consistent,
    require_schema,
    server_view,
    warm_all,
)
from pgherd.runner.deploy.targets import TargetEndpoint, Targets
from pgherd.runner.deploy.transition_plan import RunningServer, ServerKey, Transition, plan, volumes_of
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle, Runtime
from pgherd.runtimes.vm.agent_client import GuestError
from pgherd.runtimes.vm.runtime import DEFAULT_BOOT, BootOptions
from pgherd.study.study import studies
from pgherd.workloads.user_script import stage


class Deployer:
    """Deployed servers of one node. Implements ``apply`` of ``runner.execute.local_backend.Backend`` and the protocol ``TargetResolver``.

    Data directories and cgroups belong to the session: its work directory and its journal remove them. Each running
    postmaster also has a journal entry, because a server killed by SIGKILL leaves shared memory that only its pid
    file names.
    """

    def __init__(
        self, session: RunSession, installations: Mapping[str, Installation], watcher: RunObserver, how: BootOptions = DEFAULT_BOOT
    ) -> None:
        """Args:
        installations: bin directory, as trials name it, to the installation that runs it (a copy where needed).
        how: options of all guests.
        """
        self.node: Node = session.node
        self.facts: HostFacts = session.facts
        self.account = session.account
        self.scratch = session.work / "out"
        self.watched: list[ProcessView] = []
        self._groups: list[CgroupView] = []
        self._session = session
        self._installations = dict(installations)
        self._watcher = watcher
        self._up: dict[ServerKey, RunningServer] = {}
        self._instances: dict[ServerKey, Instance] = {}
        self._undos: dict[ServerKey, list[int]] = {}
        self._handles: dict[str, ContainerHandle] = {}
        self._made_by: dict[str, Runtime] = {}
        self._kills = MemoryKills(session.node)
        self._budget = MemoryBudget(session)
        self._volumes = Volumes(session.node, session.journal, session.account, str(session.work))
        self._targets = Targets(session, self._volumes, watcher)
        self._pages = HugePageManager(session.node, session.journal)
        self._templates = Templates(session, self._installations, watcher)
        self._housing = DataDirectories(session, self._installations, self._templates, self._volumes, watcher)
        self._guests = Guests(session, self._installations, self._templates, self._volumes, watcher, how)
        self._attached = ExternalServers(session)
        self._trial: Trial | None = None
        self._vacuumed: Readings = {}
        self._contexts: dict[str, str] | None = None
        self._scripts: dict[Script, Script] = {}
        self.node.make_dir(str(self.scratch), mode=0o711)

    def apply(self, trial: Trial) -> tuple[Deployer, str]:
        """Apply the trial's deployment and starting state with the fewest restarts.

        Raises:
            TrialError: a server does not start, or a template cannot be made.
            UsageError: an external server cannot be connected to.
        """
        import psycopg

        self._kills.begin()
        try:
            self._notice_deaths()
            transition = self._budget.planned(trial, partial(plan, self._up, trial.deployment, how=self._how))
            self._trial = trial
            target_notes = self._targets.apply(trial)
            self._carry_out(trial, transition)
            if not trial.continues_previous:
                self._checkpoint(trial, transition)
            self._vacuumed = autovacuum_runs(trial, self._instances)
        except psycopg.Error as error:
            self._guests.check()
            starting = next((key for key in self._undos if key not in self._up), None)
            name, details = (f"server {'/'.join(starting)}", f"; {self._error_text(starting)}") if starting else ("a server", "")
            raise TrialError(f"{name} could not be prepared: {str(error).strip()}{details}") from None
        except (OSError, TrialError):
            self._guests.check()  # a guest that has died is the cause
            raise
        tracked = tracked_processes.watch(self.node, self._session.platform)
        self.watched, self._groups = [*tracked.processes, *self._targets.views()], tracked.groups
        return self, ", ".join([transition.summary(), *target_notes])

    def prepare(self, *containers: Container) -> None:
        """Create the templates and boot images that ``deploy`` needs for these containers, so that it starts them at once."""
        for container in containers:
            if container.runtime == "vm":
                self._guests.images_for(container.servers)
            for server in container.servers:
                self._templates.of(server)

    def deploy(self, *containers: Container) -> None:
        """Deploy these containers and their servers for interactive use. Containers of earlier calls that are absent are removed.

        A container without servers is a guest, and ``guest`` gives access to it. Raises as ``apply``.
        """
        self.apply(Trial(point={}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=()))
        for container in containers:
            if not container.servers:
                runtime = self._session.runtime(container.runtime)
                handle = self._handles[container.name] = runtime.create(container)
                self._made_by[container.name] = runtime
                self._handles[container.name] = self._guests.boot_without_server(container, handle)

    def server(self, container: str, name: str = "pg") -> Instance:
        """Return a running server of this host or of a guest."""
        return self._instances[container, name]

    def guest(self, container: str) -> BootedGuest:
        """Return a container's running guest, also one without a server. Raises TrialError if there is none."""
        return self._guests.booted(container)

    def probe(self, trial: Trial) -> dict[str, float]:
        """Return the readings of a trial that has a probe and no load.

        The study of the probe's name measures the contents of a deployment. A reading's name ends in its unit.

        Raises:
            TrialError: there is no such probe, or it failed.
            PgherdError: as ``postgres.templates.ensure``.
        """
        study = studies().get(trial.probe or "")
        measure = study.hook(study.probe_module, "measure") if study is not None else None
        if measure is None:
            raise TrialError(f"there is no probe '{trial.probe}'")
        readings: dict[str, float] = measure(self._session, self._installations, trial, self._watcher)
        return readings

    def _checkpoint(self, trial: Trial, transition: Transition) -> None:
        """Checkpoint each server under a writing load, so that its next timed checkpoint is as late as possible.

        A server that has just started needs none.
        """
        writers = trial.written()
        for address, _, container, server, _ in trial.deployment.databases():
            started = transition.steps.get((container.name, server.name)) in ("restart", "restore")
            if str(address) in writers and not started and (container.name, server.name) in self._instances:
                instance = self._instances[container.name, server.name]
                instance.checkpoint()
                instance.disconnect()

    def readings(self) -> dict[str, dict[str, float]]:
        """Return values that are read once per trial, such as the kind of pages below shared memory."""
        buffers = buffer_readings(self.node, self._trial, self._instances)
        vacuumed = increase(autovacuum_runs(self._trial, self._instances), self._vacuumed)
        kinds = (self._pages, self._targets, self._guests, self._attached)
        return merge_readings(*(kind.readings() for kind in kinds), buffers, vacuumed)

    def from_prometheus(self, windows: Sequence[tuple[float, float]]) -> tuple[list[SpoolReading], list[PrometheusView]]:
        """Return samples of external servers' hosts, and a view of each server and window. Raises TrialError."""
        return self._attached.from_prometheus(windows)

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Return the non-default settings of the target's server (or of the first server), or {} if no server responds."""
        import psycopg

        for key in sorted(self._instances, key=lambda key: target is not None and target.split("/")[1:3] != list(key)):
            with contextlib.suppress(psycopg.Error, GuestError):
                differing = self._instances[key].differing()
                self._instances[key].disconnect()  # an idle server has no session
                return differing
        return self._attached.settings() or {}

    def endpoint(self, target: str) -> TargetEndpoint:
        """Return the endpoint of a database or another target of the trial's deployment."""
        endpoint = self._targets.endpoint(target)
        if endpoint is not None:
            return endpoint
        assert self._trial is not None
        for address, _, container, server, database in self._trial.deployment.databases():
            if str(address) == target:
                key, handle = (container.name, server.name), self._handles[container.name]
                bin_ = self._installations[server.bin].bin
                if key in self._attached:
                    return self._attached.endpoint(key, handle, bin_, database, writes=target in self._trial.written())
                instance, access = self._instances[key], self._instances[key].access
                inside = TargetEndpoint(
                    handle,
                    bin_,
                    instance.socket_dir,
                    instance.port,
                    database.connection,
                    instance.user,
                    database.scale,
                    directory=self._targets.volumes.of_database(target),
                )
                if access is None:
                    return inside
                environment = {"PGPASSFILE": access.password_file}
                return replace(inside, outside=replace(inside, host=access.host, port=access.port, environment=environment))
        raise TrialError(f"target {target} is not part of this deployment")

    def try_memory(self, container: str, memory: int) -> bool:
        return self._made_by[container].try_memory(container, memory)

    def guests(self) -> dict[str, ContainerHandle]:
        """Return the container handles of virtual machines, by container."""
        return {name: handle for name, handle in self._handles.items() if handle.node is not None}

    def script(self, script: Script) -> Script:
        """Return a copy of the script that the servers' user can read."""
        if script not in self._scripts:
            directory = str(self._session.work / f"script-{len(self._scripts)}")
            self.node.make_dir(directory, mode=0o711)
            self._scripts[script] = stage(self.node, [script], directory)[0]
        return self._scripts[script]

    def view(self) -> SamplingView:
        """Return the running containers and servers."""
        quiet = () if self._trial is None else self._trial.quiet
        containers = [
            ContainerView(name, handle.groups, self._pids(name), name in quiet)
            for name, handle in self._handles.items()
            if self._made_by[name].name != "external"
        ]
        containers += [ContainerView(name, groups) for name, groups in self._external_groups().items()]
        cache = str(self._session.cache)
        servers = [
            replace(
                server_view(self.node, "/".join(key), instance, self._up[key].server.settings if key in self._up else {}, cache),
                quiet=key[0] in quiet,
            )
            for key, instance in self._instances.items()
        ]
        environment = self._session.environment
        trace = environment is not None and environment.trace_io
        budget = self._budget
        return SamplingView(
            [*containers, *budget.views()],
            [*servers, *self._attached.views()],
            groups=self._groups,
            run_cgroup=budget.groups(),
            swap=budget.swap(),
            trace=trace,
            guests=self._guests.views(),
            volumes=self._targets.volumes.directories,
            cpus=() if self._external_groups() else cpus.restricted(self.node),  # a server that exists may use other CPUs
        )

    def check(self) -> None:
        """Raise TrialError, with the end of its log, if a server or another target has died, or the memory-locking process."""
        self._targets.check()
        self._guests.check()
        self._budget.check()
        for key in self._undos:
            if not self._instances[key].running:
                raise TrialError(f"server {'/'.join(key)} {self._instances[key].ending()} during the trial; {self._error_text(key)}")

    def error_text(self, target: str) -> str:
        """Describe the target's server after its driver failed: OOM kills and the end of its log."""
        description = self._targets.error_text(target)
        if description is not None:
            return description
        container, server = target.split("/")[1:3]
        return self._error_text((container, server))

    def _error_text(self, key: ServerKey) -> str:
        if key in self._attached:
            return "see the log of this external server"
        log = log_ending(self._instances[key].log_tail(50).splitlines())
        if guest_kills := self._guests.oom_kills(key[0]):
            return f"{guest_kills}; {log}"
        kills = self._kills.poll(key[0], self._handles[key[0]].groups) if key[0] in self._handles else 0
        return f"{memory_kill_message(key[0], kills)}; {log}" if kills else log

    def verify(self, trial: Trial) -> None:
        """Check the consistency of the databases for which the trial requests it. Raises TrialError with the violated
        conditions.
        """
        for address, _, container, server, database in trial.deployment.databases():
            if database.verify and (instance := self._instances.get((container.name, server.name))) is not None:
                self._watcher.setup(f"checking the consistency of {address}")
                require_consistent(instance, database)

    def oom_kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills in the containers since the trial began."""
        groups = {name: handle.groups for name, handle in self._handles.items()} | self._external_groups()
        return (*self._kills.seen(groups), *self._guests.kills())

    def stop_phase_targets(self) -> None:
        """Stop what ran only for the phases of the trial."""
        self._targets.stop_phase_targets()

    def mark_unhealthy(self) -> None:
        """Have all servers restored before the next trial, because a server that crashed and recovered has cold caches."""
        self.stop_phase_targets()
        self._up = {key: replace(up, healthy=False) for key, up in self._up.items()}

    def close(self) -> None:
        """Stop all servers immediately.

        A server that does not stop is killed with its cgroup or by the journal.
        """
        self._stop(list(self._instances), mode="immediate")
        for key in list(self._up):
            self._attached.detach(key)
        self._targets.close()
        self._budget.close()

    def _notice_deaths(self) -> None:
        """Mark dead servers, and servers in guests that do not respond, as unhealthy, so that they are restored.

        Also remove what a failed transition left incomplete.
        """
        mute = self._guests.mute()
        for key in [key for key in self._instances if key not in self._up]:
            self._stop([key], mode="immediate")
            self._forget(key)
        for name in set(self._handles) - {container for container, _ in self._up}:
            self._destroy(name)
        for key, up in self._up.items():
            if not (self._attached.answers(key) if key in self._attached else self._instances[key].running) or key[0] in mute:
                self._up[key] = replace(up, healthy=False)

    def _how(self, old: Mapping[str, str], new: Mapping[str, str]) -> Literal["keep", "reload", "restart"]:
        if old == new:
            return "keep"
        if self._contexts is None:
            self._contexts = contexts(self.node, next(iter(self._installations.values())))
        return reload_or_restart(old, new, self._contexts)

    def _carry_out(self, trial: Trial, transition: Transition) -> None:
        requested = {(c.name, s.name): (c, s) for _, c, s in trial.deployment.servers()}
        restart = [key for key, step in transition.steps.items() if step in ("restart", "restore") and key in self._instances]
        restore = [key for key, step in transition.steps.items() if step == "restore"]
        self._stop([*transition.remove_servers, *restart], mode="fast")
        for key in restart:
            self._up.pop(key)  # until it runs again
        self._guests.end({*transition.remove_containers, *(container for container, _ in restore)})
        if self._budget.differs(trial):  # all servers have stopped
            self._budget.apply(
                trial, self._housing.files({key: instance for key, instance in self._instances.items() if not self._is_guest(key)})
            )
        for key in [*transition.remove_servers, *restore]:
            self._forget(key)
        for name in transition.remove_containers:
            self._destroy(name)
        for name in transition.make_containers:
            container = next(c for c, _ in requested.values() if c.name == name)
            runtime = self._session.runtime(container.runtime)
            self._handles[name] = runtime.create(container)
            self._made_by[name] = runtime
        self._attached.attach({key: requested[key] for key, step in transition.steps.items() if step == "attach"})
        self._kills.watch(self._external_groups())
        local = [key for key in restore if not capabilities_of(requested[key][0].runtime).own_kernel]
        self._instances.update(self._housing.restore({key: requested[key] for key in local}, trial, self._budget.tight))
        in_guests = {key: requested[key] for key in restore if key not in local}
        guests, handles = self._guests.restore(in_guests, self._handles, trial.deployment)
        self._instances.update(guests)
        self._handles.update(handles)
        with self._housing.settling({key: (self._instances[key], requested[key][1]) for key in local}):
            for key, step in transition.steps.items():
                container, server = requested[key]
                if step in ("reload", "restart", "restore"):
                    self._instances[key].write_settings(server.settings)
                    self._instances[key].sched_batch = server.sched_batch
                if step == "reload":
                    self._instances[key].reload()
            started = [key for key, step in transition.steps.items() if step in ("restart", "restore")]
            files = [key for key in started if key not in restore and not self._is_guest(key)]
            # Pages cached by an earlier trial are charged to a cgroup that may be gone. A limited container would use them at no cost.
            limited_memory = {key: self._instances[key] for key in files if requested[key][0].memory is not None}
            clones.drop_cache(self.node, self._housing.files(limited_memory))
            limited = [key for key in started if requested[key][0].io_limited]
            self._limit_io(limited, requested, lift=True)  # loading the databases into memory takes no part in the measurement
            self._start({key: requested[key][1] for key in started})
            self._limit_io(limited, requested)
        self._budget.tighten()  # after the sync, so that swapping out has the disk to itself
        up = {key: RunningServer(c, s, volumes=volumes_of(s, trial.deployment)) for key, (c, s) in requested.items()}
        self._up.update(up)

    def _external_groups(self) -> dict[str, Mapping[str, str]]:
        return {name: cgroup.groups for name, cgroup in self._attached.cgroups.items()}

    def _limit_io(self, keys: Sequence[ServerKey], requested: Mapping[ServerKey, tuple[Container, Server]], lift: bool = False) -> None:
        """Limit the I/O of the containers of these servers, on the devices with their files, or lift the limit."""
        for name in dict.fromkeys(container for container, _ in keys):
            container = next(c for c, _ in requested.values() if c.name == name)
            files = self._housing.files({key: instance for key, instance in self._instances.items() if key[0] == name})
            unlimited = container.model_copy(update={"iops": None, "io_bandwidth": None})
            self._made_by[name].limit_io(unlimited if lift else container, files)

    def _is_guest(self, key: ServerKey) -> bool:
        return key[0] in self._handles and self._handles[key[0]].node is not None

    def _pids(self, container: str) -> list[int]:
        """Return the pids on this node by which CPU of a container without a cgroup is counted."""
        if self._handles[container].node is not None:
            return [guest.pid for guest in self._guests.views() if guest.name == container]
        return [instance.pid for key, instance in self._instances.items() if key[0] == container]

    def _destroy(self, name: str) -> None:
        self._guests.forget(name)
        if name in self._made_by:
            self._made_by[name].destroy(name)
            del self._made_by[name]
        self._handles.pop(name, None)
        self._kills.forget(name)

    def _start(self, servers: Mapping[ServerKey, Server]) -> None:
        if not servers:
            return
        self._watcher.setup(f"starting {len(servers)} servers")
        local = {key: (self._instances[key], server) for key, server in servers.items() if not self._is_guest(key)}
        for key in servers:
            self._undos[key] = []
        for key in local:  # servers in a guest end with the guest
            note = ReleaseSharedMemory(data_directory=self._instances[key].data_dir)
            self._undos[key].append(self._session.journal.note(note))
        for key, entries in self._pages.reserve(local).items():
            self._undos[key] += entries
        launches: list[Launch] = []
        for key in servers:
            handle = self._handles[key[0]]
            launches.append((self._instances[key], handle.join, handle.cpus) if key in local else (self._instances[key], (), None))
        try:
            start_all(launches)
        except TrialError:
            refilled = self._pages.refill(local)
            if not refilled:
                raise
            for key, entries in refilled.items():
                self._undos[key] += entries
            start_all(launches)
        for key in local:
            pid = self._instances[key].pid
            start = processes.start_time(self.node, pid)
            if start is not None:
                self._undos[key].append(self._session.journal.note(Kill(pid=pid, start=start)))
        self._watcher.setup(f"warming {len(servers)} servers")
        warm_all({key: self._instances[key] for key in servers}, lambda key: self._warm(key, servers[key]), self._watcher.check_cancelled)

    def _warm(self, key: ServerKey, server: Server) -> None:
        """Read the databases into shared buffers, and run each sampled query once, so that a trial counts no first
        misses.
        """
        names = list(dict.fromkeys(database.dbname for database in server.databases))
        self._volumes.populate(self._instances[key], names)
        self._guests.populate(key, self._instances[key], names)
        observed = not self._is_guest(key)
        for name in names:
            clones.prewarm(self._instances[key], name, partial(self._pages.poll, key) if observed else None)
        for schema in [database for database in server.databases if database.schema_of is not None]:
            require_schema(self._instances[key], schema)
        view = SamplingView(servers=[candidate for candidate in self.view().servers if candidate.name == "/".join(key)])
        for source in sampler.sources(view):
            if source.kind == "sql":
                self._instances[key].sql(source.statement)
        self._instances[key].disconnect()

    def _stop(self, keys: Iterable[ServerKey], mode: StopMode) -> None:
        keys = [key for key in keys if key in self._instances]
        mute = self._guests.mute()  # a guest that does not respond is ended together with its servers
        with contextlib.suppress(GuestError):
            stop_all([self._instances[key] for key in keys if key[0] not in mute], mode)
        for key in keys:
            self._pages.forget(key)
            for number in self._undos.pop(key, []):
                self._session.journal.undo(number)

    def _forget(self, key: ServerKey) -> None:
        instance = self._instances.pop(key, None)
        self._up.pop(key, None)
        self._attached.detach(key)
        if instance is not None and not self._is_guest(key):  # a guest's disks are removed with the guest
            self._housing.remove(key, instance)
