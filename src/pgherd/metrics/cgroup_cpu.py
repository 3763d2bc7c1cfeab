"""CPU that a container's control group used, and how often its quota throttled it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pgherd.metrics import accounting
from pgherd.metrics.cpu import TICKS
from pgherd.metrics.keyed import cadence, flat_keyed, number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_V1_STAT = {"user": "cpu.user", "system": "cpu.system"}
_V1_PERIODS = {"nr_periods": "cpu.periods", "nr_throttled": "cpu.throttled_periods"}
_V2_TIMES = {"usage_usec": "cpu.usage", "user_usec": "cpu.user", "system_usec": "cpu.system", "throttled_usec": "cpu.throttled"}


class CgroupCpuSampler:
    """cgroup v1 (cpuacct.usage, cpuacct.stat, cpu.stat) and v2 (cpu.stat); v1 where a container has both.

    v1's user and system times have the kernel's tick (10 ms), its usage nanoseconds.
    """

    name = "cgroup_cpu"
    metrics = (
        Metric("cpu.usage", "s", "counter", "CPU time used"),
        Metric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        Metric("cpu.system", "s", "counter", "CPU time in the kernel"),
        Metric("cpu.throttled", "s", "counter", "time for which the quota held tasks back, summed over CPUs"),
        Metric("cpu.periods", "periods", "counter", "quota periods in which something ran"),
        Metric("cpu.throttled_periods", "periods", "counter", "quota periods in which tasks were held back"),
    )

    def sources(self, view: View) -> list[Source]:
        """Three files of a container's v1 group, one of its v2 group; of other groups the usage only."""
        slow = cadence(len(view.containers))
        found: list[Source] = []
        for container in view.containers:
            entity, groups = f"container:{container.name}", container.groups
            found += self._usage(entity, groups)
            place = accounting.cpu(groups)
            if place is not None and place.version == "v1":
                found.append(Source(self.name, entity, "file", f"{place.directory}/cpuacct.stat", every=slow, tag="v1 stat"))
                if groups.get("cpu"):
                    found.append(Source(self.name, entity, "file", f"{groups['cpu']}/cpu.stat", tag="v1 throttling"))
        for group in view.groups:
            found += self._usage(group.entity, group.groups)
        return found

    def _usage(self, entity: str, groups: Mapping[str, str]) -> list[Source]:
        place = accounting.cpu(groups)
        if place is None:
            return []
        file, tag = ("cpuacct.usage", "v1 usage") if place.version == "v1" else ("cpu.stat", "v2")
        return [Source(self.name, entity, "file", f"{place.directory}/{file}", tag=tag)]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per file."""
        if source.tag == "v1 usage":
            values = {"cpu.usage": number(raw.strip()) / 1e9}
        elif source.tag == "v1 stat":
            values = flat_keyed(raw, _V1_STAT, 1 / TICKS)
        elif source.tag == "v1 throttling":
            values = flat_keyed(raw, _V1_PERIODS) | flat_keyed(raw, {"throttled_time": "cpu.throttled"}, 1e-9)
        else:
            values = flat_keyed(raw, _V2_TIMES, 1e-6)
            if "nr_periods" in raw:
                values |= flat_keyed(raw, _V1_PERIODS)
        yield source.entity, values


SAMPLER = CgroupCpuSampler()
