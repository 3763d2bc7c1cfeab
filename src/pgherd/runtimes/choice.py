"""Which runtime a run uses: the one that was asked for, else the best that works here, and why."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgherd.host.journal import Journal
from pgherd.model.deployment import GuestMemory, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.cgroup import CgroupRuntime
from pgherd.runtimes.external import ExternalRuntime
from pgherd.runtimes.process import ProcessRuntime
from pgherd.runtimes.runtime import Runtime
from pgherd.runtimes.vm.runtime import VmRuntime

Kind = type[CgroupRuntime] | type[ProcessRuntime] | type[ExternalRuntime] | type[VmRuntime]

RUNTIMES: tuple[Kind, ...] = (CgroupRuntime, ProcessRuntime)
"""What can be chosen from, best first."""
_NAMED_ONLY: tuple[Kind, ...] = (VmRuntime, ExternalRuntime)
"""What is never chosen by itself."""


def choose(
    node: Node, journal: Journal, facts: HostFacts, requested: str | None, suffix: str, cpus: Sequence[int] | None = None
) -> tuple[Runtime, str]:
    """The runtime and a sentence on what was chosen and why.

    Raises UsageError for a name that no runtime has, CapabilityError when the requested one can't be used here.
    """
    candidates = (*RUNTIMES, *(runtime for runtime in _NAMED_ONLY if runtime.name == requested))
    names = [runtime.name for runtime in candidates]
    if requested is not None and requested not in names:
        raise UsageError(f"there is no runtime '{requested}' for this; choose one of {', '.join(names)}")
    passed_over: list[str] = []
    for make in candidates:
        if requested not in (None, make.name):
            continue
        runtime: Runtime = make(node, journal, facts, suffix, cpus)
        able = runtime.capabilities()
        if able.available:
            why = "as asked" if requested else "; ".join(passed_over) or "the best available here"
            return runtime, f"Runtime {runtime.name} ({why}): {able.note}."
        if requested:
            raise CapabilityError(f"the {requested} runtime can't be used here: {able.note}")
        passed_over.append(f"{runtime.name} can't be used: {able.note}")
    raise CapabilityError(f"no runtime can be used here: {'; '.join(passed_over)}")


@dataclass
class Runtimes:
    """The runtimes of one run, each opened when it is first needed, within the run's one budget.

    ``host`` is that budget, ``suffix`` names what is made on the host, ``cpus`` are those reserved (None: all), ``guest_memory`` says
    how guests share its memory (None: each keeps its own). Every
    runtime may give its containers the whole budget: a trial that has containers of two runtimes up at once can use
    more than that, one after the other cannot. Without control groups the memory budget is only a reservation:
    nothing can enforce it.
    """

    node: Node
    journal: Journal
    facts: HostFacts
    host: Host
    suffix: str
    cpus: Sequence[int] | None = None
    guest_memory: GuestMemory | None = None
    _open: dict[str, Runtime] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def get(self, name: str) -> Runtime:
        """The runtime of this name, open.

        Raises UsageError for a name that no runtime has, CapabilityError when it can't be used here or can't hold the
        budget.
        """
        with self._lock:
            if name not in self._open:
                runtime, _ = choose(self.node, self.journal, self.facts, name, self.suffix, self.cpus)
                if isinstance(runtime, VmRuntime):
                    runtime.within(self._around_guests())
                    runtime.share(self.guest_memory, self.host.memory)
                # Registered first: what a failing open() has made is to be removed too.
                self._open[name] = runtime
                try:
                    runtime.open(self.host if name == "cgroup" else Host(cores=self.host.cores))
                except BaseException:
                    runtime.close()
                    del self._open[name]
                    raise
            return self._open[name]

    def _around_guests(self) -> Runtime:
        """Guests run in control groups where those work."""
        best, _ = choose(self.node, self.journal, self.facts, None, self.suffix, self.cpus)
        return self.get(best.name)

    def close(self) -> None:
        """Close all, the last opened first; raises OSError for what is left (it stays in the journal)."""
        failed: list[str] = []
        while self._open:
            name = next(reversed(self._open))
            try:
                self._open.pop(name).close()
            except OSError as error:
                failed.append(str(error))
        if failed:
            raise OSError("; ".join(failed))
