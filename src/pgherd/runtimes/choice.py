"""Which runtime a run uses: the one that was asked for, else the best that works here, and why."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.cgroup import CgroupRuntime
from pgherd.runtimes.process import ProcessRuntime
from pgherd.runtimes.runtime import Runtime

RUNTIMES = (CgroupRuntime, ProcessRuntime)
"""Best first."""


def choose(
    node: Node, journal: Journal, facts: HostFacts, requested: str | None, suffix: str, cpus: Sequence[int] | None = None
) -> tuple[Runtime, str]:
    """The runtime and a sentence on what was chosen and why.

    Raises UsageError for a name that no runtime has, CapabilityError when the requested one can't be used here.
    """
    names = [runtime.name for runtime in RUNTIMES]
    if requested is not None and requested not in names:
        raise UsageError(f"there is no runtime '{requested}' for this; choose one of {', '.join(names)}")
    passed_over: list[str] = []
    for make in RUNTIMES:
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
