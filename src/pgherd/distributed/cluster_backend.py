"""Several hosts as one backend: each host's agent runs its part of a trial, and the results are merged.

During a trial live samples are fetched from the hosts every few seconds, and written into the run's directory in the same form
(pgherd.store.live_state) as for a run on one host, in the driver's time. They are removed after the trial, when all samples are collected.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from pgherd.cluster.interfaces import HostLost
from pgherd.distributed import merge_results
from pgherd.distributed.agent import FileChunk, HostInfo, HostResult, HostSnapshot, HostWindows
from pgherd.distributed.agent_pool import SETUP_TIMEOUT_S, AgentPool
from pgherd.distributed.clock_alignment import Clocks, together
from pgherd.distributed.merge_results import ClusterObservations, loaded, qualified
from pgherd.distributed.place_trial import files_of, named, own_surroundings, part, placed, served, with_addresses, with_files
from pgherd.distributed.template_distribution import TemplateDistribution
from pgherd.drivers.driver import on_clock
from pgherd.model.analysis import Thresholds
from pgherd.model.errors import PgherdError, TrialError
from pgherd.model.load import transaction_timeout
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node import secrets
from pgherd.runner.execute.local_backend import TrialOutcome
from pgherd.runner.loop import has_no_load
from pgherd.runner.progress import RunObserver
from pgherd.store.live_state import SPOOL, TOLD, output_name
from pgherd.store.samples import HostSamples, merge_samples

LEAD_S = 2.0
"""Initial seconds between the agreement on an instant and that instant. Later, the hosts' measured readiness determines
it.
"""
MIN_LEAD_S = 0.4
MAX_LEAD_S = 20.0
_CALL_TIMEOUT_S = 120.0
_COUNT_TIMEOUT_S = 1800.0
_CLOSE_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_STEP_INTERVAL_S = 1.0
_QUIET_S = 0.5
"""Seconds before and after a border between phases in which no host is called."""
_MIDWAY_S = 20.0
"""Duration of a trial (s) from which the clocks are also compared halfway."""


class ClusterBackend:
    """Implements ``runner.execute.local_backend.Backend`` over the agents of a cluster. Call ``open`` before its use, ``close`` after
    it. ``open`` reads the ``facts`` of each host.
    """

    def __init__(
        self,
        pool: AgentPool,
        cluster: Cluster,
        run: str,
        environment: RunEnvironment,
        postgres: Mapping[str, str],
        watcher: RunObserver,
        argument: str = "",
    ) -> None:
        """Args:
        environment: those of all hosts together.
        postgres: installations required by the run: bin directory → version.
        argument: the run in commands that messages name ('': its name).
        """
        self._pool, self._cluster, self._run, self._argument = pool, cluster, run, argument or run
        self._surroundings, self._postgres, self._watcher = environment, dict(postgres), watcher
        self._lead = LEAD_S
        self._named_hosts: frozenset[str] = frozenset()
        self._files: dict[str, dict[str, str]] = {}
        self._sharing = TemplateDistribution(pool, watcher)
        self._step, self._step_reported_at = "", 0.0
        self._variables = secrets.variables()

    def open(self) -> None:
        """Create an agent on every host, and open the run on each.

        Raises:
            TrialError: a host is missing.
            PgherdError: a host lacks something that the run requires.
        """
        self._gather()
        if self._pool.lost:
            missing = "; ".join(f"{host} ({reason})" for host, reason in self._pool.lost.items())
            raise TrialError(f"not all hosts of the run are present: {missing}; start their agents ('pgherd cluster status' lists them)")

    def close(self) -> None:
        """End the run on every host that responds."""
        for host, notes in self._pool.each("close", dict.fromkeys(self._pool.hosts(), ()), timeout=_CLOSE_TIMEOUT_S).items():
            for text in notes:
                self._watcher.note(f"on host {host}: {text}")
        self._pool.dismiss()

    def placed(self, trial: Trial) -> Trial:
        """Return the trial with its containers placed on the present hosts. Hosts that have returned are included again.

        Raises:
            PgherdError: a host is lost and the run should stop then, no host remains, or the containers cannot be
                placed.
        """
        if self._pool.returned():
            self._watcher.note(
                f"{', '.join(h for h in self._pool.lost if h in self._pool.engine.hosts())} has returned; all hosts begin again."
            )
            self._gather()
        if self._pool.lost and self._cluster.on_lost_host == "stop":
            raise PgherdError(
                f"{self._losses()}, and the run stops then (--on-lost-host stop); when it has returned: pgherd resume {self._argument}"
            )
        if not self._pool.hosts():
            raise PgherdError(f"{self._losses()}, and no host remains; when they have returned: pgherd resume {self._argument}")
        self._named_hosts = named(trial)
        try:
            return placed(trial, self._cluster, self._pool.hosts())
        except ValueError as error:
            raise PgherdError(f"the containers cannot be placed on {', '.join(self._pool.hosts())}: {error}") from None

    def apply(self, trial: Trial) -> str:
        """Apply each host's part, in parallel. Raises TrialError if no required host remains."""
        if self._pool.lost and has_no_load(trial):
            raise TrialError(f"{self._losses()}, and this trial has nothing to load without it")
        parts = self._parts(trial, whole=True)
        self._sharing.share(parts)
        self._watcher.setup(f"deploying on {len(parts)} host{'' if len(parts) == 1 else 's'}")
        summaries = self._pool.all("apply", {h: (p,) for h, p in parts.items()}, timeout=SETUP_TIMEOUT_S, meanwhile=self._report_step)
        if self._cluster.client in parts:
            endpoints = self._pool.all("ways", {h: (p,) for h, p in parts.items() if h != self._cluster.client}, timeout=_CALL_TIMEOUT_S)
            self._pool.call(self._cluster.client, "learn", {target: way for ways in endpoints.values() for target, way in ways.items()})
        return "; ".join(f"{host}: {summary}" for host, summary in summaries.items())

    def run(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: RunObserver) -> TrialOutcome:
        """Run all parts in step, count in one window, check, and collect the files after the measurement."""
        parts = self._parts(trial)
        if trial.open_ended:  # a host without a command has no driver that could end
            parts = {host: host_part for host, host_part in parts.items() if loaded(host_part)}
        clocks, began = Clocks(), time.time()
        clocks.add(self._pool.engine.offsets())
        forwarder = LiveForwarder(self._pool, list(parts), directory, clocks)
        try:
            drove = self._drive(trial, parts, name, clocks, watcher, forwarder)
        finally:
            forwarder.end()
        clocks.beats = self._pool.engine.beats(began)
        clocks.add(self._pool.engine.offsets())
        self._require_clocks(parts, clocks)
        busy = {host: loaded(host_part) for host, host_part in parts.items()}
        windows = together({host: report.spans for host, report in drove.items()}, busy, clocks, open_ended=trial.open_ended)
        borders = {
            host: None
            if trial.open_ended
            else [(clocks.to_host(host, window.start), clocks.to_host(host, window.end)) for window in windows]
            for host in parts
        }
        counted = self._counted(trial, parts, borders, thresholds)
        phases = merge_results.merge({host: share.phases for host, share in counted.items()}, windows, clocks)
        self._collect(list(parts), directory, clocks, windows[0].start)
        seen = ClusterObservations(windows, clocks, self._missing(trial), trial.open_ended)
        checks = merge_results.together({host: share.checks for host, share in counted.items()}, phases, seen, thresholds)
        return TrialOutcome(phases, checks, merge_results.kills({host: share.kills for host, share in counted.items()}, clocks))

    def failed(self, trial: Trial, thresholds: Thresholds) -> TrialOutcome:
        """Handle a failed trial on the remaining hosts: return OOM kills and their checks, and mark their servers
        unhealthy.
        """
        parts = {host: host_part for host, host_part in self._parts(trial, send=False).items() if host in self._pool.hosts()}
        counted: dict[str, HostResult] = self._pool.each("failed", {h: (p, thresholds) for h, p in parts.items()}, timeout=_CALL_TIMEOUT_S)
        # It must reach its maximum by the third trial, because three failures in a row end the run.
        self._lead = min(4 * max(self._lead, LEAD_S), MAX_LEAD_S)
        checks = merge_results.worst_of({host: share.checks for host, share in counted.items() if share.checks})
        if missing := self._missing(trial):
            checks.append(merge_results.all_hosts(list(parts), missing))
        return TrialOutcome((), checks, merge_results.kills({host: share.kills for host, share in counted.items()}, Clocks()))

    def probe(self, trial: Trial) -> dict[str, float]:
        """Run a trial without load on the first host that has a container for it."""
        host = next((candidate.name for candidate in trial.deployment.hosts if candidate.containers), trial.deployment.hosts[0].name)
        readings: dict[str, float] = self._pool.call(host, "probe", self._parts(trial)[host], timeout=SETUP_TIMEOUT_S)
        return readings

    def settings(self, target: str | None = None) -> dict[str, str]:
        hosts = self._pool.hosts()
        if target is not None and target.split("/")[0] in hosts:
            hosts = [target.split("/")[0]]
        for host in hosts:
            settings: dict[str, str] = self._pool.each("settings", {host: (target,)}).get(host, {})
            if settings:
                return settings
        return {}

    def _gather(self) -> None:
        """Create the agents, and open the run on each. If a host is lost meanwhile, the others begin again without it."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._begin()
            except HostLost as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                self._watcher.note(f"{error}; the others begin again")
        return None

    def _begin(self) -> None:
        names = [host.name for host in self._cluster.hosts]
        present = [host for host in self._pool.gather(names) if host in names]
        self._files = {host: {} for host in present}
        self._sharing = TemplateDistribution(self._pool, self._watcher)
        greetings: dict[str, HostInfo] = self._pool.all("hello", dict.fromkeys(present, ()), timeout=_CALL_TIMEOUT_S)
        self.facts = {host: greeting.facts for host, greeting in greetings.items()}
        self._watcher.setup(f"opening the run on {len(present)} hosts")
        arguments = {host: (agents_run(self._run, host), self._surroundings_of(host), self._postgres) for host in present}
        for host, notes in self._pool.all("open", arguments, timeout=_CALL_TIMEOUT_S).items():
            for text in notes:
                self._watcher.note(f"on host {host}: {text}")
        if self._variables:
            self._pool.all("keep_variables", dict.fromkeys(present, (self._variables,)), timeout=_CALL_TIMEOUT_S)

    def _surroundings_of(self, host: str) -> RunEnvironment:
        environment, client = own_surroundings(self._surroundings, self._cluster.host(host)), self._cluster.client
        if host == client:  # that host has no server
            return environment.model_copy(update={"runtime": "process", "swap": None, "trace_io": False})
        return environment if client is None else environment.model_copy(update={"listen": self._pool.addresses()[host]})

    def _missing(self, trial: Trial) -> dict[str, str]:
        """Return the lost hosts, of those that a trial should have, with the reasons."""
        required = self._named_hosts or {host.name for host in trial.deployment.hosts}
        return {
            host: reason for host, reason in self._pool.lost.items() if not (self._named_hosts or self._cluster.in_turn) or host in required
        }

    def _losses(self) -> str:
        return "; ".join(f"host {host} is lost ({reason})" for host, reason in self._pool.lost.items())

    def _parts(self, trial: Trial, *, send: bool = True, whole: bool = False) -> dict[str, Trial]:
        """Return each host's part, with the driver's files at their paths on the host.

        Args:
            send: send the files that a host does not have yet.
            whole: return parts with all loads on a host's servers, also those whose drivers run elsewhere.
        """
        parts = {}
        trial = with_addresses(trial, self._pool.addresses())
        for host in trial.deployment.hosts:
            host_part = served(trial, host.name) if whole else part(trial, host.name)
            if send and host.name not in self._pool.lost:
                self._send(host.name, files_of([host_part]))
            parts[host.name] = with_files(host_part, self._files.get(host.name, {}))
        return parts

    def _send(self, host: str, files: set[str]) -> None:
        sent = self._files.setdefault(host, {})
        for path in sorted(files - set(sent)):
            name = f"{len(sent):03d}-{Path(path).name}"
            sent[path] = self._pool.put(host, name, Path(path).read_bytes())

    def _report_step(self) -> None:
        """Report the current step of one of the hosts, if it is new."""
        hosts, now = self._pool.hosts(), time.monotonic()
        if not hosts or now - self._step_reported_at < _STEP_INTERVAL_S:
            return
        self._step_reported_at = now
        host = hosts[int(now) % len(hosts)]
        step = self._pool.each("step", {host: ()}).get(host, "")
        if step and step != self._step:
            self._step = step
            self._watcher.setup(f"host {host}: {step}")

    def _drive(
        self, trial: Trial, parts: Mapping[str, Trial], name: str, clocks: Clocks, watcher: RunObserver, forwarder: LiveForwarder
    ) -> dict[str, HostWindows]:
        """Agree on an instant, and run all parts from it on."""
        begin = time.time() + self._lead
        arguments: dict[str, tuple[Any, ...]] = {h: (p, name, clocks.to_host(h, begin)) for h, p in parts.items() if clocks.of(h)}
        self._require_clocks(parts, clocks)
        # Not trial.seconds(): drivers that end by themselves have no planned duration, only a limit.
        timeout = self._lead + sum(phase.warmup + phase.seconds for phase in trial.phases) + _CALL_TIMEOUT_S
        timeout += transaction_timeout(max(phase.seconds for phase in trial.phases))  # for the last transactions
        tasks = _MeasuringTasks(trial, begin, watcher, lambda: clocks.add(self._pool.engine.offsets()), forwarder)
        drove: dict[str, HostWindows] = self._pool.all("run", arguments, timeout=timeout, meanwhile=tasks)
        needed = self._lead - min(report.ready for report in drove.values())
        self._lead = min(max(MIN_LEAD_S, 1.5 * needed + 0.2), MAX_LEAD_S)
        return drove

    def _counted(
        self, trial: Trial, parts: Mapping[str, Trial], borders: Mapping[str, Any], thresholds: Thresholds
    ) -> dict[str, HostResult]:
        """Return host → its share of the results.

        Counts of clients on a separate host are checked on the servers' hosts, with the observations there. So the
        clients' host counts first. Of the intents it checks only whether the clients were the limit.
        """
        arguments: dict[str, tuple[Any, ...]] = {host: (host_part, borders[host], thresholds) for host, host_part in parts.items()}
        client = self._cluster.client
        of_client: dict[str, HostResult] = {}
        if client is not None and client in arguments:
            of_clients = [intent for intent in trial.validity_checks if intent == "not-client-bound"]
            of_servers = [intent for intent in trial.validity_checks if intent != "not-client-bound"]
            client_part = parts[client].model_copy(update={"validity_checks": tuple(of_clients)})
            of_client = self._pool.all("results", {client: (client_part, borders[client], thresholds)}, timeout=_COUNT_TIMEOUT_S)
            targets = [phase.targets for phase in of_client[client].phases]
            arguments = {
                host: (
                    host_part.model_copy(update={"validity_checks": tuple(of_servers)}),
                    borders[host],
                    thresholds,
                    [[target for target in counted if target.target.startswith(f"{host}/")] for counted in targets],
                )
                for host, host_part in self._parts(trial, whole=True).items()
                if host != client
            }
        return of_client | self._pool.all("results", arguments, timeout=_COUNT_TIMEOUT_S)

    def _require_clocks(self, parts: Mapping[str, Trial], clocks: Clocks) -> None:
        for host in parts:
            if not clocks.of(host):
                reason = self._pool.engine.lost().get(host, "its clock cannot be read")
                self._pool.lost.setdefault(host, reason)
                raise HostLost(host, reason)

    def _collect(self, hosts: Sequence[str], directory: Path, clocks: Clocks, instant: float) -> None:
        """Collect all files of the trial: samples and drivers' output of all hosts together, other files by host."""
        writing, ended = threading.Lock(), threading.Event()
        try:
            self._pool.side_by_side(partial(self._fetch, directory, writing, ended), hosts)
        finally:
            with writing:  # after Ctrl-C the trial is removed, and an answer that is due must not create its directory again
                ended.set()
        samples = [HostSamples(directory / "hosts" / host, clocks.offset(host, instant), partial(_renamed, host=host)) for host in hosts]
        merge_samples(samples, directory)
        for host in hosts:
            host_directory = directory / "hosts" / host
            for file in (host_directory / "samples").glob("*.parquet"):
                file.unlink()
            for output in sorted((host_directory / "drivers").glob("*/*")):  # a target's name begins with its host's
                target = directory / output.relative_to(host_directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                output.replace(target)
            shutil.rmtree(host_directory / "drivers", ignore_errors=True)
        for empty in sorted((path for path in (directory / "hosts").rglob("*") if path.is_dir()), reverse=True):
            if not any(empty.iterdir()):
                empty.rmdir()
        if not any((directory / "hosts").iterdir()):
            (directory / "hosts").rmdir()

    def _fetch(self, directory: Path, writing: threading.Lock, ended: threading.Event, host: str) -> None:
        """Collect the files of one host. Nothing is written once ``ended`` is set, which requires the lock ``writing``."""
        target = directory / "hosts" / host
        position: tuple[int, int] | None = (0, 0)
        while position is not None:
            pieces: list[FileChunk]
            pieces, position = self._pool.call(host, "collect", position)
            with writing:
                if ended.is_set():
                    return
                target.mkdir(parents=True, exist_ok=True)
                for piece in pieces:
                    file = (target / piece.path).resolve()
                    if not file.is_relative_to(target.resolve()):
                        raise TrialError(f"host {host} sent the file '{piece.path}', which is outside of the trial's directory")
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with open(file, "ab") as out:
                        out.write(piece.data)
        self._pool.call(host, "discard")


class _MeasuringTasks:
    """Tasks of the driver while the hosts measure.

    It reports phases to the watcher, compares the clocks halfway through a long trial, and fetches live samples, but
    not near a border between phases.
    """

    def __init__(self, trial: Trial, begin: float, watcher: RunObserver, compare: Callable[[], None], forwarder: LiveForwarder) -> None:
        self._watcher, self._compare, self._forwarder = watcher, compare, forwarder
        self._begin = begin
        self._midway = begin + trial.seconds() / 2 if trial.seconds() >= _MIDWAY_S else None
        self._borders: list[tuple[float, tuple[str, float, float]]] = []
        self._instants: list[float] = []
        instant = begin
        for phase in trial.phases:
            self._borders.append((instant, (phase.name, phase.warmup, phase.seconds)))
            self._instants += [instant, instant + phase.warmup]
            instant += phase.warmup + phase.seconds
        self._instants.append(instant)

    def __call__(self) -> None:
        now = time.time()
        while self._borders and now >= self._borders[0][0]:
            self._watcher.phase(*self._borders.pop(0)[1])
        if self._midway is not None and now >= self._midway:
            self._midway = None
            self._compare()
        self._forwarder.poll(now, quiet=now < self._begin or any(abs(now - start) < _QUIET_S for start in self._instants))


def agents_run(run: str, host: str) -> str:
    """Return the run's name on one host. It is unique per host, because agents may share a machine."""
    import hashlib

    return f"{run[:-4]}{hashlib.blake2s(f'{run} {host}'.encode(), digest_size=2).hexdigest()}"


def _renamed(entity: str, *, host: str) -> str:
    return qualified(entity, host)


FORWARD_INTERVAL_S = 5.0
"""Seconds between two glimpses of a host."""


class LiveForwarder:
    """Requests glimpses from hosts during a trial and writes them. It never waits, and never fails a trial."""

    def __init__(self, pool: AgentPool, hosts: Sequence[str], directory: Path, clocks: Clocks) -> None:
        """Args:
        directory: the trial's directory in the run.
        clocks: clocks of the hosts.
        """
        self._pool, self._hosts, self._directory, self._clocks = pool, list(hosts), directory, clocks
        self._requests: dict[str, Future[Any]] = {}
        self._sources: dict[tuple[str, str], int] = {}
        self._due = 0.0

    def poll(self, now: float, *, quiet: bool) -> None:
        """Write what has arrived, and request more if due and not ``quiet``."""
        for host, job in list(self._requests.items()):
            if job.done():
                del self._requests[host]
                with contextlib.suppress(Exception):  # errors of the host are reported by the trial; live samples may fail
                    self._write(host, job.result())
        if quiet or now < self._due:
            return
        self._due = now + FORWARD_INTERVAL_S
        for host in self._hosts:
            if host not in self._requests:
                self._requests[host] = self._pool.ask(host, "glimpse")

    def end(self) -> None:
        """Remove what was written, since all samples are collected after the trial."""
        with contextlib.suppress(OSError):
            (self._directory / SPOOL).unlink(missing_ok=True)
        shutil.rmtree(self._directory / TOLD, ignore_errors=True)

    def _write(self, host: str, glimpse: HostSnapshot) -> None:
        documents: list[dict[str, Any]] = []
        sources = dict(self._sources)
        for t, sampler, entity, values in glimpse.readings:
            key = (sampler, qualified(entity, host))
            if key not in sources:
                sources[key] = len(sources)
                documents.append({"sources": [[*key, "read on", host, ""]], "first": sources[key]})
            documents.append({"t": self._clocks.to_driver(host, t), "i": sources[key], "values": values})
        with open(self._directory / SPOOL, "a", encoding="utf-8") as spool:
            spool.write("".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents))
        self._sources = sources  # only after writing, because unwritten sources are not announced
        ahead = self._clocks.offset(host, time.time())
        for number, target, driver, lines in glimpse.told:
            output_directory = self._directory / TOLD / output_name(number, target)
            output_directory.mkdir(parents=True, exist_ok=True)
            with open(output_directory / "stderr", "a", encoding="utf-8") as stderr:
                stderr.write(on_clock(driver, lines, ahead))
