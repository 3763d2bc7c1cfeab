"""Several hosts as one bench: each host's agent plays its part of a trial, and their results are put together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pgherd.cluster.remote import HostLost
from pgherd.model.cluster import Cluster
from pgherd.model.errors import PgherdError, TrialError
from pgherd.model.run import Surroundings
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Trial
from pgherd.runner.hosts import merging
from pgherd.runner.hosts import verdicts as host_verdicts
from pgherd.runner.hosts.agent import Counted, Drove, Piece
from pgherd.runner.hosts.clocks import Clocks, together
from pgherd.runner.hosts.crew import Crew
from pgherd.runner.hosts.golden_sharing import Sharing
from pgherd.runner.hosts.merging import qualified
from pgherd.runner.hosts.placing import (
    files_of,
    loaded,
    named,
    nothing_left,
    own_surroundings,
    part,
    placed,
    served,
    with_addresses,
    with_files,
)
from pgherd.runner.hosts.relay import Relay
from pgherd.runner.hosts.verdicts import Seen
from pgherd.runner.play.bench import Played
from pgherd.runner.watcher import Watcher
from pgherd.store.merged_samples import HostSamples, merge_samples

LEAD = 2.0
"""Seconds between the agreement on an instant and the instant, until it is known how long the hosts take to be ready."""
LEAST_LEAD = 0.4
MOST_LEAD = 20.0
_PATIENCE = 120.0
_SETTING_UP = 4 * 3600.0
_COUNTING = 1800.0
_CLOSING = 60.0
_ATTEMPTS = 3
_TELL = 1.0
_QUIET = 0.5
"""Seconds before and after a border between phases in which no host is asked for anything."""
_MIDWAY = 20.0
"""From this length of a trial on, seconds, the clocks are compared in its middle too."""


class ClusterBench:
    """Implements ``runner.bench.Bench`` over the agents of a cluster's hosts. ``open`` before its use; ``close`` after it."""

    def __init__(
        self, crew: Crew, cluster: Cluster, run: str, surroundings: Surroundings, postgres: Mapping[str, str], watcher: Watcher
    ) -> None:
        """``surroundings`` are those of all hosts together; ``postgres`` is what the run needs: bin directory → version."""
        self._crew, self._cluster, self._run = crew, cluster, run
        self._surroundings, self._postgres, self._watcher = surroundings, dict(postgres), watcher
        self._lead = LEAD
        self._asked: frozenset[str] = frozenset()
        self._files: dict[str, dict[str, str]] = {}
        self._sharing = Sharing(crew, watcher)
        self._step, self._told = "", 0.0

    def open(self) -> None:
        """Make an agent on every host, and open the run on each.

        Raises:
            TrialError: a host is not there.
            PgherdError: a host does not have what the run needs.
        """
        self._gather()
        if self._crew.lost:
            gone = "; ".join(f"{host} ({why})" for host, why in self._crew.lost.items())
            raise TrialError(f"not all hosts of the run are there: {gone}; start their agents ('pgherd cluster status' shows them)")

    def close(self) -> None:
        """End the run on every host that still answers."""
        for host, said in self._crew.each("close", dict.fromkeys(self._crew.hosts(), ()), timeout=_CLOSING).items():
            for text in said:
                self._watcher.note(f"on host {host}: {text}")
        self._crew.dismiss()

    def placed(self, trial: Trial) -> Trial:
        """The trial with its containers on the hosts that are there; hosts that have come back are taken in again.

        Raises:
            PgherdError: a host is lost and the run is to stop then, or none is left, or the containers cannot be placed.
        """
        if self._crew.returned():
            self._watcher.note(
                f"{', '.join(h for h in self._crew.lost if h in self._crew.engine.hosts())} is there again; all hosts begin anew."
            )
            self._gather()
        if self._crew.lost and self._cluster.on_lost_host == "stop":
            raise PgherdError(
                f"{self._gone()}, and the run was to stop then (--on-lost-host stop); when it is back: pgherd resume {self._run}"
            )
        if not self._crew.hosts():
            raise PgherdError(f"{self._gone()}, and no host is left; when they are back: pgherd resume {self._run}")
        self._asked = named(trial)
        try:
            return placed(trial, self._cluster, self._crew.hosts())
        except ValueError as error:
            raise PgherdError(f"the containers cannot be placed on {', '.join(self._crew.hosts())}: {error}") from None

    def apply(self, trial: Trial) -> str:
        """Bring each host's part about, all at once. Raises TrialError where no host that it needs is left."""
        if self._crew.lost and nothing_left(trial):
            raise TrialError(f"{self._gone()}, and without it there is nothing to load in this trial")
        parts = self._parts(trial, whole=True)
        self._sharing.share(parts)
        self._watcher.setup(f"bringing the deployment about on {len(parts)} host{'' if len(parts) == 1 else 's'}")
        said = self._crew.all("apply", {h: (p,) for h, p in parts.items()}, timeout=_SETTING_UP, meanwhile=self._tell)
        if self._cluster.client in parts:
            found = self._crew.all("ways", {h: (p,) for h, p in parts.items() if h != self._cluster.client}, timeout=_PATIENCE)
            self._crew.call(self._cluster.client, "learn", {target: way for ways in found.values() for target, way in ways.items()})
        return "; ".join(f"{host}: {words}" for host, words in said.items())

    def play(self, trial: Trial, name: str, directory: Path, thresholds: Thresholds, watcher: Watcher) -> Played:
        """Play all parts in step, count in one window, judge, and collect the files once nothing is measured any more."""
        parts = self._parts(trial)
        if trial.open_ended:  # a host without a command has nothing that could end
            parts = {host: one for host, one in parts.items() if loaded(one)}
        clocks, began = Clocks(), time.time()
        clocks.add(self._crew.engine.offsets())
        relay = Relay(self._crew, list(parts), directory, clocks)
        try:
            drove = self._drive(trial, parts, name, clocks, watcher, relay)
        finally:
            relay.end()
        clocks.beats = self._crew.engine.beats(began)
        clocks.add(self._crew.engine.offsets())
        self._insist_known(parts, clocks)
        busy = {host: loaded(one) for host, one in parts.items()}
        windows = together({host: one.spans for host, one in drove.items()}, busy, clocks, open_ended=trial.open_ended)
        borders = {
            host: None if trial.open_ended else [(clocks.to_host(host, one.start), clocks.to_host(host, one.end)) for one in windows]
            for host in parts
        }
        counted = self._counted(trial, parts, borders, thresholds)
        phases = merging.merge({host: one.phases for host, one in counted.items()}, windows, clocks)
        self._collect(list(parts), directory, clocks, windows[0].start)
        seen = Seen(windows, clocks, self._missing(trial), trial.open_ended)
        judged = host_verdicts.together({host: one.verdicts for host, one in counted.items()}, phases, seen, thresholds)
        return Played(phases, judged, merging.kills({host: one.kills for host, one in counted.items()}, clocks))

    def failed(self, trial: Trial, thresholds: Thresholds) -> Played:
        """What the kernels ended on the hosts that are left; nothing there is taken for healthy."""
        parts = {host: one for host, one in self._parts(trial, send=False).items() if host in self._crew.hosts()}
        found: dict[str, Counted] = self._crew.each("failed", {h: (p, thresholds) for h, p in parts.items()}, timeout=_PATIENCE)
        self._lead = min(2 * max(self._lead, LEAD), MOST_LEAD)
        judged = {host: one.verdicts for host, one in found.items() if one.verdicts}
        verdicts = host_verdicts.worst_of(judged)
        if missing := self._missing(trial):
            verdicts.append(host_verdicts.all_hosts(list(parts), missing))
        return Played((), verdicts, merging.kills({host: one.kills for host, one in found.items()}, Clocks()))

    def probe(self, trial: Trial) -> dict[str, float]:
        """What a trial without load asks: of the first host that has a container for it."""
        host = next((one.name for one in trial.deployment.hosts if one.containers), trial.deployment.hosts[0].name)
        found: dict[str, float] = self._crew.call(host, "probe", self._parts(trial)[host], timeout=_SETTING_UP)
        return found

    def settings(self, target: str | None = None) -> dict[str, str]:
        """As the server of a target, or the first that answers, says."""
        hosts = self._crew.hosts()
        if target is not None and target.split("/")[0] in hosts:
            hosts = [target.split("/")[0]]
        for host in hosts:
            said: dict[str, str] = self._crew.each("settings", {host: (target,)}).get(host, {})
            if said:
                return said
        return {}

    def _gather(self) -> None:
        """Make the agents, and open the run on each; a host that is lost meanwhile is left out, and the others begin again."""
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
        there = [host for host in self._crew.gather(names) if host in names]
        self._files = {host: {} for host in there}
        self._sharing = Sharing(self._crew, self._watcher)
        self._watcher.setup(f"opening the run on {len(there)} hosts")
        arguments = {host: (agents_run(self._run, host), self._surroundings_of(host), self._postgres) for host in there}
        for host, said in self._crew.all("open", arguments, timeout=_PATIENCE).items():
            for text in said:
                self._watcher.note(f"on host {host}: {text}")

    def _surroundings_of(self, host: str) -> Surroundings:
        own, client = own_surroundings(self._surroundings, self._cluster.host(host)), self._cluster.client
        if host == client:  # no server stands there
            return own.model_copy(update={"runtime": "process", "swap": None, "trace": False})
        return own if client is None else own.model_copy(update={"listen": self._crew.addresses()[host]})

    def _missing(self, trial: Trial) -> dict[str, str]:
        """The hosts, of those that a trial should have, that are lost, with the reasons."""
        own = self._asked or {host.name for host in trial.deployment.hosts}
        return {host: why for host, why in self._crew.lost.items() if not (self._asked or self._cluster.in_turn) or host in own}

    def _gone(self) -> str:
        return "; ".join(f"host {host} is lost ({why})" for host, why in self._crew.lost.items())

    def _parts(self, trial: Trial, *, send: bool = True, whole: bool = False) -> dict[str, Trial]:
        """Each host's part, with the driver's files as the host has them; ``send`` those that it does not have yet. ``whole``: with all
        loads on its own servers, wherever their drivers run."""
        found = {}
        trial = with_addresses(trial, self._crew.addresses())
        for host in trial.deployment.hosts:
            own = served(trial, host.name) if whole else part(trial, host.name)
            if send and host.name not in self._crew.lost:
                self._send(host.name, files_of([own]))
            found[host.name] = with_files(own, self._files.get(host.name, {}))
        return found

    def _send(self, host: str, files: set[str]) -> None:
        there = self._files.setdefault(host, {})
        for path in sorted(files - set(there)):
            name = f"{len(there):03d}-{Path(path).name}"
            there[path] = self._crew.call(host, "put", name, Path(path).read_bytes())

    def _tell(self) -> None:
        """Pass on what one of the hosts does, where there is anything new."""
        hosts, now = self._crew.hosts(), time.monotonic()
        if not hosts or now - self._told < _TELL:
            return
        self._told = now
        host = hosts[int(now) % len(hosts)]
        step = self._crew.each("step", {host: ()}).get(host, "")
        if step and step != self._step:
            self._step = step
            self._watcher.setup(f"host {host}: {step}")

    def _drive(
        self, trial: Trial, parts: Mapping[str, Trial], name: str, clocks: Clocks, watcher: Watcher, relay: Relay
    ) -> dict[str, Drove]:
        """Agree on an instant, and have all parts played from it on."""
        begin = time.time() + self._lead
        arguments: dict[str, tuple[Any, ...]] = {h: (p, name, clocks.to_host(h, begin)) for h, p in parts.items() if clocks.of(h)}
        self._insist_known(parts, clocks)
        # Not trial.seconds(): where drivers end by themselves nobody planned how long they take, but for the longest that they may.
        longest = self._lead + sum(phase.ramp + phase.seconds for phase in trial.phases) + _PATIENCE
        look = _Meanwhile(trial, begin, watcher, lambda: clocks.add(self._crew.engine.offsets()), relay)
        drove: dict[str, Drove] = self._crew.all("play", arguments, timeout=longest, meanwhile=look)
        needed = self._lead - min(one.ready for one in drove.values())
        self._lead = min(max(LEAST_LEAD, 1.5 * needed + 0.2), MOST_LEAD)
        return drove

    def _counted(self, trial: Trial, parts: Mapping[str, Trial], borders: Mapping[str, Any], thresholds: Thresholds) -> dict[str, Counted]:
        """Host → its share of the results. What clients on a host of their own have counted is judged where the servers are, beside
        what was seen there: so that host comes first. Of what is meant, it is asked alone whether the clients were the limit."""
        asked: dict[str, tuple[Any, ...]] = {host: (one, borders[host], thresholds) for host, one in parts.items()}
        client = self._cluster.client
        found: dict[str, Counted] = {}
        if client is not None and client in asked:
            of_clients = [intent for intent in trial.intents if intent == "not-client-bound"]
            of_servers = [intent for intent in trial.intents if intent != "not-client-bound"]
            own = parts[client].model_copy(update={"intents": tuple(of_clients)})
            found = self._crew.all("results", {client: (own, borders[client], thresholds)}, timeout=_COUNTING)
            targets = [phase.targets for phase in found[client].phases]
            asked = {
                host: (
                    one.model_copy(update={"intents": tuple(of_servers)}),
                    borders[host],
                    thresholds,
                    [[target for target in counted if target.target.startswith(f"{host}/")] for counted in targets],
                )
                for host, one in self._parts(trial, whole=True).items()
                if host != client
            }
        return found | self._crew.all("results", asked, timeout=_COUNTING)

    def _insist_known(self, parts: Mapping[str, Trial], clocks: Clocks) -> None:
        for host in parts:
            if not clocks.of(host):
                why = self._crew.engine.lost().get(host, "its clock cannot be asked")
                self._crew.lost.setdefault(host, why)
                raise HostLost(host, why)

    def _collect(self, hosts: Sequence[str], directory: Path, clocks: Clocks, at: float) -> None:
        """Bring all files of the trial here: samples and drivers' output of all hosts together, the rest by host."""
        self._crew.side_by_side(partial(self._fetch, directory), hosts)
        samples = [HostSamples(directory / "hosts" / host, clocks.offset(host, at), partial(_renamed, host=host)) for host in hosts]
        merge_samples(samples, directory)
        for host in hosts:
            own = directory / "hosts" / host
            for file in (own / "samples").glob("*.parquet"):
                file.unlink()
            for output in sorted((own / "drivers").glob("*/*")):  # a target's name begins with its host's
                kept = directory / output.relative_to(own)
                kept.parent.mkdir(parents=True, exist_ok=True)
                output.replace(kept)
            shutil.rmtree(own / "drivers", ignore_errors=True)
        for empty in sorted((path for path in (directory / "hosts").rglob("*") if path.is_dir()), reverse=True):
            if not any(empty.iterdir()):
                empty.rmdir()
        if not any((directory / "hosts").iterdir()):
            (directory / "hosts").rmdir()

    def _fetch(self, directory: Path, host: str) -> None:
        target = directory / "hosts" / host
        target.mkdir(parents=True, exist_ok=True)
        at: tuple[int, int] | None = (0, 0)
        while at is not None:
            pieces: list[Piece]
            pieces, at = self._crew.call(host, "collect", at)
            for piece in pieces:
                file = (target / piece.path).resolve()
                if not file.is_relative_to(target.resolve()):
                    raise TrialError(f"host {host} hands over a file '{piece.path}', which lies outside of the trial's directory")
                file.parent.mkdir(parents=True, exist_ok=True)
                with open(file, "ab") as out:
                    out.write(piece.data)
        self._crew.call(host, "discard")


class _Meanwhile:
    """What the driver does while the hosts measure: tell the watcher, compare the clocks once in the middle of a long trial, and have
    the hosts show something now and then, though not near a border between phases."""

    def __init__(self, trial: Trial, begin: float, watcher: Watcher, compare: Callable[[], None], relay: Relay) -> None:
        self._watcher, self._compare, self._relay = watcher, compare, relay
        self._begin = begin
        self._midway = begin + trial.seconds() / 2 if trial.seconds() >= _MIDWAY else None
        self._borders: list[tuple[float, tuple[str, float, float]]] = []
        self._instants: list[float] = []
        at = begin
        for phase in trial.phases:
            self._borders.append((at, (phase.name, phase.ramp, phase.seconds)))
            self._instants += [at, at + phase.ramp]
            at += phase.ramp + phase.seconds
        self._instants.append(at)

    def __call__(self) -> None:
        now = time.time()
        while self._borders and now >= self._borders[0][0]:
            self._watcher.phase(*self._borders.pop(0)[1])
        if self._midway is not None and now >= self._midway:
            self._midway = None
            self._compare()
        self._relay.look(now, quiet=now < self._begin or any(abs(now - start) < _QUIET for start in self._instants))


def agents_run(run: str, host: str) -> str:
    """The run's name on one host: agents may share a machine, and what they make there must not have one name."""
    import hashlib

    return f"{run[:-4]}{hashlib.blake2s(f'{run} {host}'.encode(), digest_size=2).hexdigest()}"


def _renamed(entity: str, *, host: str) -> str:
    return qualified(entity, host)
