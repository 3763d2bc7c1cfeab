"""Pressure stall information: time in which tasks waited for CPU, memory or I/O, of the host and of containers.

Format and meaning: Documentation/accounting/psi.rst of the kernel ("some": at least one task waited; "full": all
that were not idle did). Containers, and the group around them, have it in their v2 group, even where the controllers lie in v1 hierarchies.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.accounting import BUDGET
from pgherd.metrics.keyed import cadence, nested_keyed, number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_RESOURCES = ("cpu", "memory", "io")


class PressureSampler:
    """The ``total`` of each line, in seconds; ``full`` for CPU is left out: it has no meaning for the host."""

    name = "pressure"
    metrics = (
        Metric("psi.cpu.some", "s", "counter", "time in which some task waited for a CPU (or for its quota)"),
        Metric("psi.memory.some", "s", "counter", "time in which some task waited for memory"),
        Metric("psi.memory.full", "s", "counter", "time in which all tasks waited for memory"),
        Metric("psi.io.some", "s", "counter", "time in which some task waited for I/O"),
        Metric("psi.io.full", "s", "counter", "time in which all tasks waited for I/O"),
    )

    def sources(self, view: View) -> list[Source]:
        """Three files of the host, and three of each container that has a v2 group."""
        found = [Source(self.name, "host", "file", f"/proc/pressure/{kind}", tag=kind) for kind in _RESOURCES]
        slow = cadence(len(view.containers))
        for entity, groups in [(BUDGET, view.budget), *((f"container:{one.name}", one.groups) for one in view.containers)]:
            group = groups.get("v2")
            if group:
                found += [Source(self.name, entity, "file", f"{group}/{kind}.pressure", every=slow, tag=kind) for kind in _RESOURCES]
        return found

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; the file counts in microseconds."""
        values: dict[str, float] = {}
        for share, fields in nested_keyed(raw).items():
            name = f"psi.{source.tag}.{share}"
            if share in ("some", "full") and name != "psi.cpu.full":
                values[name] = number(fields.get("total", "")) / 1e6
        if not values:
            raise ValueError(f"no pressure lines in a text that begins with '{raw[:40]}'")
        yield source.entity, values


SAMPLER = PressureSampler()
