"""Targets that are no databases: volumes, hosts, and what else a load can drive. What reaches them needs no server.

A new kind of target is a class with the methods of ``TargetKind`` and a line in ``Targets``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgherd.metrics.sampler import ProcessView
from pgherd.model.load import Load
from pgherd.model.trial import Trial
from pgherd.runner.deploy import load_files
from pgherd.runner.deploy.links import LinkTargets
from pgherd.runner.deploy.stage import NO_ROOM, Reach
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher


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
            if load_files.ensure(self._session.node, directory, some, self._session.account, self._watcher):
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
