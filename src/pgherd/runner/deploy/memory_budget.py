"""Memory that all containers of a trial's deployment share. Below the run's share of the host it is overcommitted.

The limit is raised only while servers are stopped. Raising it swaps nothing back in, so a trial would inherit the
swapped pages of the previous one. For the same reason the page cache of their files is dropped and the cgroups are
emptied: every trial starts alike.

If the run has created swap, the limit is lowered after the warm-up, and the excess is swapped out. Warm-up under a
low limit would take very long: readahead runs in a context that may not write shared buffers to swap
(page_cache_ra_unbounded, memalloc_nofs_save), so the kernel scans all of them for each page that it reads.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Mapping

from pgherd.host import locked_memory
from pgherd.metrics.cgroup import LOCKED
from pgherd.metrics.sampler import ContainerView, SwapView
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.trial import State, Trial
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Process
from pgherd.postgres import clones
from pgherd.runner.deploy.transition_plan import Transition
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle, Runtime


class MemoryBudget:
    """Memory limit of all deployed containers."""

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._current: tuple[int, str] | None = None
        self._pending_limit = False
        self._process: Process | None = None
        self._handle: ContainerHandle | None = None

    @property
    def tight(self) -> bool:
        """True if the page cache is part of the measurement: swap was requested, or the limit was changed."""
        return self._swap_requested or self._current is not None

    @property
    def _swap_requested(self) -> bool:
        return self._session.environment is not None and self._session.environment.swap is not None

    def differs(self, trial: Trial) -> bool:
        """Return whether a trial needs a different limit than the current one, or starts with more memory than it gets.

        Raises TrialError if it requests more than the run has.
        """
        requested = self._requested(trial)
        if requested != (self._current or (self._run_memory, "cgroup-limit")) or self._pending_limit or self._lock_end() is not None:
            return True
        return trial.state != "warm" and self._lowered_after_warmup(requested[0])

    def state(self, trial: Trial) -> State:
        """Return the starting state to apply: servers are stopped before the limit changes.

        Guests are booted again, because they keep the memory that is charged to them while they run.
        """
        if not self.differs(trial):
            return trial.state
        if any(capabilities_of(container.runtime).own_kernel for _, container in trial.deployment.containers()):
            return "fresh"
        return "restarted" if trial.state == "warm" else trial.state

    def planned(self, trial: Trial, plan: Callable[[State], Transition]) -> Transition:
        """Return the transition to a trial; ``plan`` maps a state to a transition. Raises as ``differs``.

        If memory was taken away and any server must start, all servers are stopped: it could not be warmed up in too
        little memory.
        """
        transition = plan(self.state(trial))
        if transition.starts and not self.differs(trial) and self._lowered_after_warmup(self._requested(trial)[0]):
            self._pending_limit = True
            transition = plan(self.state(trial))
        return transition

    def apply(self, trial: Trial, directories: Iterable[str]) -> None:
        """Apply the trial's limit while all servers are stopped. ``directories`` hold their files.

        If the limit is lowered after the warm-up, the servers have the run's memory until ``tighten``.

        Raises:
            TrialError: the kernel refuses the limit.
        """
        self.drop(directories)
        memory, staging = self._requested(trial)
        self._pending_limit = True  # also if the kernel refuses it: the previous limit ends here
        self.close()
        later = self._lowered_after_warmup(memory)
        self._change(*((self._run_memory, "cgroup-limit") if later else (memory, staging)))
        self._current, self._pending_limit = (memory, staging), later

    def tighten(self) -> None:
        """Lower the limit to the trial's, after the servers were warmed up.

        Raises:
            TrialError: the kernel cannot reclaim enough.
        """
        if self._pending_limit and self._current is not None:
            self._change(*self._current)
            self._pending_limit = False

    def _lowered_after_warmup(self, memory: int) -> bool:
        """Return whether the limit is lowered under warm servers. Guests share memory by balloons instead."""
        environment = self._session.environment
        return memory < self._run_memory and self._session.swap is not None and environment is not None and environment.runtime == "cgroup"

    def _change(self, memory: int, staging: str) -> None:
        runtime = self._runtime()
        try:
            runtime.change_budget(self._run_memory if staging == "mlock" else memory)
            if staging == "mlock" and memory < self._run_memory:
                self._lock_memory(runtime, self._run_memory - memory)
        except CapabilityError as error:
            raise TrialError(f"{format_bytes(memory)} of memory for all containers cannot be set: {error}") from None

    def check(self) -> None:
        """Raise TrialError if the memory-locking process has ended: the containers have had its memory since."""
        code = self._lock_end()
        if code is not None:
            raise TrialError(f"the process that locks memory ended during the trial (exit code {code}, possibly after an OOM kill)")

    def _lock_end(self) -> int | None:
        """Return the exit code of the memory-locking process, or None if it runs or there is none."""
        return None if self._process is None else self._process.poll()

    def drop(self, directories: Iterable[str]) -> None:
        """Reset the page cache as for a fresh container: no pages of these directories, no charges in the cgroups."""
        clones.drop_cache(self._session.node, list(directories))
        self._runtime().empty()

    def groups(self) -> Mapping[str, str]:
        """Return the directories of the run cgroup for samplers, or {} if no limit is enforced."""
        environment = self._session.environment
        return self._runtime().budget_groups() if environment is not None and capabilities_of(environment.runtime).memory_limit else {}

    def views(self) -> list[ContainerView]:
        """Return the view of the memory-locking process, if it runs."""
        if self._handle is None or self._process is None:
            return []
        return [ContainerView(LOCKED, self._handle.groups, [self._process.pid])]

    def swap(self) -> SwapView | None:
        """Return the run's own swap."""
        swap_area = self._session.swap
        return None if swap_area is None else SwapView(swap_area.path, swap_area.zram)

    def close(self) -> None:
        """End the memory-locking process and its container."""
        process, self._process = self._process, None
        handle, self._handle = self._handle, None
        if process is not None:
            process.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                process.wait(10)
        if handle is not None:
            runtime = self._runtime()
            runtime.destroy(LOCKED)
            runtime.withhold(0)

    @property
    def _run_memory(self) -> int:
        return 0 if self._session.environment is None else self._session.environment.memory

    def _requested(self, trial: Trial) -> tuple[int, str]:
        host = trial.deployment.hosts[0] if trial.deployment.hosts else Host()
        external = host.containers and all(container.runtime == "external" for container in host.containers)  # not limited by this run
        if host.memory is None or not self._run_memory or host.memory == self._run_memory or external:
            return self._run_memory, "cgroup-limit"
        if host.memory > self._run_memory:
            if not self.groups():  # no limit is enforced
                return self._run_memory, "cgroup-limit"
            raise TrialError(
                f"the trial's deployment requires {format_bytes(host.memory)} of memory, but the run has {format_bytes(self._run_memory)}"
            )
        return host.memory, host.overcommit_by

    def _runtime(self) -> Runtime:
        assert self._session.environment is not None
        return self._session.runtime(self._session.environment.runtime)

    def _lock_memory(self, runtime: Runtime, size: int) -> None:
        """Start the memory-locking process. Raises CapabilityError if memory cannot be locked."""
        self._handle = runtime.create(Container(name=LOCKED, runtime="cgroup"))
        output = self._session.work / f"{LOCKED}.out"
        with contextlib.suppress(FileNotFoundError):
            output.unlink()
        self._process = locked_memory.hold(self._session.node, size, self._handle.join, str(output))
        runtime.withhold(size)
