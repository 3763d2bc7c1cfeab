"""The memory that a trial's deployment has together: below the run's budget it is overcommitted.

It is raised only while servers are stopped: that swaps nothing back in, so that a trial would find what the one before it left. For
the same reason what their files have in the page cache is dropped, and the groups are emptied: every trial begins with the same.

Where the run has swap of its own, memory is taken away once the servers are warm, and what does not fit goes there. Warmed in too
little memory they would hardly come to an end: the kernel reads files ahead in a context in which it may not write shared buffers to
swap (page_cache_ra_unbounded, memalloc_nofs_save), and so looks through all of them for each page that it reads.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Mapping

from pgherd.host import locked_memory
from pgherd.metrics.cgroup import LOCKED
from pgherd.metrics.sampler import ContainerView, SwapView
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.trial import State, Trial
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Process
from pgherd.postgres import clones
from pgherd.runner.deploy.transition import Transition
from pgherd.runner.session import Session
from pgherd.runtimes.runtime import Room, Runtime
from pgherd.runtimes.vm.runtime import VmRuntime


class Budget:
    """The host's memory for one fleet."""

    def __init__(self, session: Session) -> None:
        """As the session opened it: the run's whole budget, and no dummy."""
        self._session = session
        self._now: tuple[int, str] | None = None
        self._owed = False
        self._process: Process | None = None
        self._room: Room | None = None

    @property
    def tight(self) -> bool:
        """Whether the page cache is a part of what is measured: swap was asked for, or a budget has been changed."""
        return self._asked_swap or self._now is not None

    @property
    def _asked_swap(self) -> bool:
        return self._session.surroundings is not None and self._session.surroundings.swap is not None

    def differs(self, trial: Trial) -> bool:
        """Whether a trial needs another budget than there is now, or begins with more than it has; raises TrialError for more than the
        run has."""
        wanted = self._wanted(trial)
        if wanted != (self._now or (self._whole, "limit")) or self._owed:
            return True
        return trial.state != "warm" and self._late(wanted[0])

    def state(self, trial: Trial) -> State:
        """The state to bring about: before the budget changes servers are stopped, and guests, which keep what they are charged for as long
        as they run, are booted anew."""
        if not self.differs(trial):
            return trial.state
        if any(container.runtime == "vm" for _, container in trial.deployment.containers()):
            return "fresh"
        return "restarted" if trial.state == "warm" else trial.state

    def planned(self, trial: Trial, plan: Callable[[State], Transition]) -> Transition:
        """The way to a trial, as ``plan`` knows it for a state. Where memory has been taken away and even one server is to be started, all
        are stopped: it would be warmed in too little. Raises as ``differs``."""
        transition = plan(self.state(trial))
        if transition.starts and not self.differs(trial) and self._late(self._wanted(trial)[0]):
            self._owed = True
            transition = plan(self.state(trial))
        return transition

    def apply(self, trial: Trial, directories: Iterable[str]) -> None:
        """Set the trial's budget; all servers are stopped, and these are the directories that their files lie in. Where the servers are
        to be warmed before, they have the whole until ``tighten``.

        Raises:
            TrialError: the kernel does not give it.
        """
        self.drop(directories)
        memory, staging = self._wanted(trial)
        self.close()
        self._owed = self._late(memory)
        self._change(*((self._whole, "limit") if self._owed else (memory, staging)))
        self._now = (memory, staging)

    def tighten(self) -> None:
        """The servers are warm: take away what the trial is not to have.

        Raises:
            TrialError: the kernel cannot.
        """
        if self._owed and self._now is not None:
            self._change(*self._now)
            self._owed = False

    def _late(self, memory: int) -> bool:
        """Whether memory is taken away under warm servers; guests share theirs by their balloons."""
        around = self._session.surroundings
        return memory < self._whole and self._session.swap is not None and around is not None and around.runtime == "cgroup"

    def _change(self, memory: int, staging: str) -> None:
        runtime = self._runtime()
        try:
            runtime.change_budget(self._whole if staging == "locked" else memory)
            if staging == "locked" and memory < self._whole:
                self._hold(runtime, self._whole - memory)
        except CapabilityError as error:
            raise TrialError(f"{format_bytes(memory)} of memory for all containers can't be brought about: {error}") from None

    def drop(self, directories: Iterable[str]) -> None:
        """Bring the page cache to where a fresh container has it: nothing of these servers' files, nothing charged to their groups."""
        clones.drop_cache(self._session.node, list(directories))
        self._runtime().empty()

    def groups(self) -> Mapping[str, str]:
        """The host group's directories, for samplers; empty where nothing limits the memory."""
        surroundings = self._session.surroundings
        return self._runtime().budget_groups() if surroundings is not None and surroundings.runtime in ("cgroup", "vm") else {}

    def views(self) -> list[ContainerView]:
        """The dummy, while there is one."""
        if self._room is None or self._process is None:
            return []
        return [ContainerView(LOCKED, self._room.groups, [self._process.pid])]

    def swap(self) -> SwapView | None:
        """The run's own swap."""
        made = self._session.swap
        return None if made is None else SwapView(made.path, made.zram)

    def close(self) -> None:
        """End the dummy; its container goes with it."""
        process, self._process = self._process, None
        room, self._room = self._room, None
        if process is not None:
            process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                process.wait(10)
        if room is not None:
            runtime = self._runtime()
            runtime.destroy(LOCKED)
            if isinstance(runtime, VmRuntime):
                runtime.withhold(0)

    @property
    def _whole(self) -> int:
        return 0 if self._session.surroundings is None else self._session.surroundings.memory

    def _wanted(self, trial: Trial) -> tuple[int, str]:
        host = trial.deployment.hosts[0] if trial.deployment.hosts else Host()
        theirs = host.containers and all(container.runtime == "external" for container in host.containers)  # no memory of ours
        if host.memory is None or not self._whole or host.memory == self._whole or theirs:
            return self._whole, "limit"
        if host.memory > self._whole:
            if not self.groups():  # nothing enforces either
                return self._whole, "limit"
            raise TrialError(
                f"the trial's deployment has {format_bytes(host.memory)} of memory, and the run's budget is {format_bytes(self._whole)}"
            )
        return host.memory, host.staging

    def _runtime(self) -> Runtime:
        assert self._session.surroundings is not None
        return self._session.runtime(self._session.surroundings.runtime)

    def _hold(self, runtime: Runtime, size: int) -> None:
        """Raises CapabilityError where it cannot be locked."""
        self._room = runtime.create(Container(name=LOCKED, runtime="cgroup"))
        output = self._session.work / f"{LOCKED}.out"
        with contextlib.suppress(FileNotFoundError):
            output.unlink()
        self._process = locked_memory.hold(self._session.node, size, self._room.join, str(output))
        if isinstance(runtime, VmRuntime):
            runtime.withhold(size)
