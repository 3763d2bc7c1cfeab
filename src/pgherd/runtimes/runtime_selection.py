"""Selection of the runtime of a run: the requested one, or the best one that works on this host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgherd.host.journal import Journal
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Host, VmMemoryPolicy
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.host_runtimes import CgroupRuntime, ExternalRuntime, ProcessRuntime
from pgherd.runtimes.runtime import Runtime
from pgherd.runtimes.vm.runtime import VmRuntime

Kind = type[CgroupRuntime] | type[ProcessRuntime] | type[ExternalRuntime] | type[VmRuntime]

RUNTIMES: tuple[Kind, ...] = (CgroupRuntime, ProcessRuntime)
"""Runtimes for automatic selection, best first."""
_NAMED_ONLY: tuple[Kind, ...] = (VmRuntime, ExternalRuntime)
"""Runtimes that are used on request only."""


def choose(
    node: Node, journal: Journal, facts: HostFacts, requested: str | None, suffix: str, cpus: Sequence[int] | None = None
) -> tuple[Runtime, str]:
    """Return the runtime, and a sentence with the choice and its reason.

    Raises:
        UsageError: there is no runtime of this name.
        CapabilityError: the requested runtime does not work on this host.
    """
    candidates = (*RUNTIMES, *(runtime for runtime in _NAMED_ONLY if runtime.name == requested))
    names = [runtime.name for runtime in candidates]
    if requested is not None and requested not in names:
        raise UsageError(f"there is no runtime '{requested}'; choose one of {', '.join(names)}")
    passed_over: list[str] = []
    for runtime_class in candidates:
        if requested not in (None, runtime_class.name):
            continue
        runtime: Runtime = runtime_class(node, journal, facts, suffix, cpus)
        capabilities = runtime.capabilities()
        if capabilities.available:
            reason = "as asked" if requested else "; ".join(passed_over) or "the best available here"
            return runtime, f"Runtime {runtime.name} ({reason}): {capabilities.note}."
        if requested:
            raise CapabilityError(f"the {requested} runtime can't be used here: {capabilities.note}")
        passed_over.append(f"{runtime.name} can't be used: {capabilities.note}")
    raise CapabilityError(f"no runtime can be used here: {'; '.join(passed_over)}")


@dataclass
class RuntimePool:
    """Runtimes of one run, each opened on first use, within the memory and cores of ``host``.

    ``suffix`` names the run cgroup. ``cpus`` are the reserved CPUs (None: all). ``guest_memory`` is the policy by which guests share memory
    (None: each guest keeps its memory).

    Each runtime may give the full budget to its containers. A trial with containers of two runtimes at the same time can therefore use
    more than the budget. Without cgroups the memory budget is a reservation only, because nothing enforces it.
    """

    node: Node
    journal: Journal
    facts: HostFacts
    host: Host
    suffix: str
    cpus: Sequence[int] | None = None
    guest_memory: VmMemoryPolicy | None = None
    _open: dict[str, Runtime] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def get(self, name: str) -> Runtime:
        """Return the open runtime of this name.

        Raises:
            UsageError: there is no runtime of this name.
            CapabilityError: it does not work on this host, or cannot enforce the budget.
        """
        with self._lock:
            if name not in self._open:
                runtime, _ = choose(self.node, self.journal, self.facts, name, self.suffix, self.cpus)
                if isinstance(runtime, VmRuntime):
                    runtime.within(self._around_guests())
                    runtime.share(self.guest_memory, self.host.memory)
                # Registered before open(), so that close() also removes the remains of a failed open().
                self._open[name] = runtime
                try:
                    runtime.open(self.host if capabilities_of(name).memory_limit else Host(cores=self.host.cores))
                except BaseException:
                    runtime.close()
                    del self._open[name]
                    raise
            return self._open[name]

    def _around_guests(self) -> Runtime:
        """Return the runtime in whose containers QEMU runs: cgroup where that works."""
        best, _ = choose(self.node, self.journal, self.facts, None, self.suffix, self.cpus)
        return self.get(best.name)

    def close(self) -> None:
        """Close all runtimes, the last opened first. Raises OSError for what could not be removed. The journal keeps it."""
        failed: list[str] = []
        while self._open:
            name = next(reversed(self._open))
            try:
                self._open.pop(name).close()
            except OSError as error:
                failed.append(str(error))
        if failed:
            raise OSError("; ".join(failed))
