"""Breakdown of a guest's memory (E6): on the host, in the balloon, compressed, swapped, or never touched.

For each guest and second

    configured = resident + ballooned + compressed + swapped + never_touched + unaccounted

| part | meaning and source |
|---|---|
| configured | memory size of the guest |
| resident | guest memory on the host: private and shared memory of the hypervisor process, less its overhead |
| ballooned | in the balloon of the guest's kernel: configured less QEMU's ``query-balloon`` |
| – by pg_balloon | memory released by pg_balloon, at most the ballooned bytes: min(its bytes, ballooned) |
| compressed | part of the host's swap of the guest (the container's cgroup) in zram or zswap, in bytes before compression |
| swapped | the rest of that swap, on a disk |
| never_touched | never touched, or returned by free page reporting: at most the guest's free memory (``stat-free-memory``) |
| unaccounted | the remainder |

**Database and kernel are never added.** Memory that a database's balloon releases becomes free memory of the guest, and later
part of the kernel's balloon. It is therefore shown as a part of that.

**Interpretation of unaccounted memory.** Positive: memory that the guest uses, that is not on the host, and that no source explains.
Negative: more memory than the guest has. Examples are pages in the balloon that the host still holds (huge pages, a balloon
that grows) or pages both in memory and in swap (swap cache). Readings are up to a second apart, so a balloon that moves by 100
MB per second causes unaccounted memory of up to that size. The balance is a real constraint because *never_touched* is at most the guest's
free memory. It cannot detect an error below that amount.

Compression gains less than it holds: ``compressed_size`` is the host memory that the compressed bytes use, at the device's ratio.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

Series = Sequence[tuple[float, float]]
"""(instant in seconds, value), in order of time."""

MAX_DISTANCE_S = 2.5
"""Maximum seconds between a reading and an instant. Interpolation spans at most twice this."""


@dataclass(frozen=True)
class GuestMemoryReading:
    """Readings of a guest at one instant, in bytes.

    ``hypervisor`` is private and shared memory of the hypervisor process, including its ``overhead``. ``swapped`` is the host's swap
    of the guest, of which the share ``compressed_share`` (0 to 1) is in compressed memory. ``free`` is the guest's free memory,
    None if not reported. ``pg_balloon`` is memory in the balloons of its databases.
    """

    configured: float
    actual: float
    hypervisor: float
    overhead: float = 0.0
    swapped: float = 0.0
    compressed_share: float = 0.0
    free: float | None = None
    pg_balloon: float = 0.0


@dataclass(frozen=True)
class MemoryBreakdown:
    """Parts of one guest's memory at one instant, in bytes. See the module.

    ``by_kernel`` + ``by_pg_balloon`` is the size of the balloon.
    """

    configured: float
    resident: float
    by_kernel: float
    by_pg_balloon: float
    compressed: float
    swapped: float
    never_touched: float
    unaccounted: float

    @property
    def ballooned(self) -> float:
        """Size of the balloon of the guest's kernel, regardless of who released the memory."""
        return self.by_kernel + self.by_pg_balloon

    @property
    def accounted(self) -> float:
        """Sum of all parts without unaccounted memory."""
        return self.resident + self.ballooned + self.compressed + self.swapped + self.never_touched

    @property
    def gap(self) -> float:
        """Unaccounted memory as a share of the configured memory."""
        return self.unaccounted / self.configured if self.configured > 0 else 0.0


def breakdown(reading: GuestMemoryReading) -> MemoryBreakdown:
    """Return the parts. With the unaccounted memory they add up to the configured memory.

    If the guest does not report its free memory, all unexplained memory counts as never touched, and only an excess is unaccounted.
    """
    ballooned = min(max(reading.configured - reading.actual, 0.0), reading.configured)
    by_pg_balloon = min(max(reading.pg_balloon, 0.0), ballooned)
    resident = min(max(reading.hypervisor - reading.overhead, 0.0), reading.configured)
    swap = max(reading.swapped, 0.0)
    compressed = swap * min(max(reading.compressed_share, 0.0), 1.0)
    remaining = reading.configured - resident - ballooned - swap
    limit = max(remaining, 0.0) if reading.free is None else max(reading.free, 0.0)
    never_touched = min(max(remaining, 0.0), limit)
    return MemoryBreakdown(
        configured=reading.configured,
        resident=resident,
        by_kernel=ballooned - by_pg_balloon,
        by_pg_balloon=by_pg_balloon,
        compressed=compressed,
        swapped=swap - compressed,
        never_touched=never_touched,
        unaccounted=remaining - never_touched,
    )


def value_at(series: Series, instant: float) -> float | None:
    """Interpolate linearly at an instant.

    If the readings around it are too far apart, return the nearest within ``MAX_DISTANCE_S``, or None.
    """
    index = bisect_right(series, (instant, float("inf")))
    before = series[index - 1] if index else None
    after = series[index] if index < len(series) else None
    if before is not None and after is not None and after[0] - before[0] <= 2 * MAX_DISTANCE_S:
        return before[1] + (after[1] - before[1]) * (instant - before[0]) / (after[0] - before[0]) if after[0] > before[0] else before[1]
    near = [reading for reading in (before, after) if reading is not None and abs(reading[0] - instant) <= MAX_DISTANCE_S]
    return min(near, key=lambda reading: abs(reading[0] - instant))[1] if near else None


def last_value(series: Series, instant: float) -> float | None:
    """Return the last value up to an instant, otherwise the first after it. For values that change slowly."""
    if not series:
        return None
    return series[max(bisect_right(series, (instant, float("inf"))) - 1, 0)][1]


def over_time(series: Mapping[str, Series]) -> list[tuple[float, MemoryBreakdown]]:
    """Return one guest's memory at each reading of its hypervisor process.

    ``series`` has readings by kind: ``configured``, ``actual``, ``hypervisor``, and if known ``overhead``, ``swapped``,
    ``compressed_share``, ``free``, ``pg_balloon``. Instants without a reading of the balloon are skipped.
    """
    timeline = []
    for instant, held in series["hypervisor"]:
        actual = value_at(series["actual"], instant)
        configured = last_value(series["configured"], instant)
        if actual is None or configured is None:
            continue
        reading = GuestMemoryReading(
            configured=configured,
            actual=actual,
            hypervisor=held,
            overhead=last_value(series.get("overhead", ()), instant) or 0.0,
            swapped=value_at(series.get("swapped", ()), instant) or 0.0,
            compressed_share=last_value(series.get("compressed_share", ()), instant) or 0.0,
            free=value_at(series.get("free", ()), instant),
            pg_balloon=value_at(series.get("pg_balloon", ()), instant) or 0.0,
        )
        timeline.append((instant, breakdown(reading)))
    return timeline


def mean_breakdown(parts: Iterable[MemoryBreakdown]) -> MemoryBreakdown | None:
    """Return the mean of each part, or None without items. The means add up as well."""
    items = list(parts)
    if not items:
        return None
    return MemoryBreakdown(**{part.name: fmean(getattr(item, part.name) for item in items) for part in fields(MemoryBreakdown)})


def compressed_share(swap_used: float, original: float) -> float:
    """Return the share of the host's swap that is in compressed memory (bytes before compression ÷ swap in use)."""
    return min(original / swap_used, 1.0) if swap_used > 0 else 0.0


def compressed_size(compressed: float, ratio: float | None) -> float | None:
    """Return the memory that ``compressed`` bytes use at a device's ``ratio``. None if the ratio is unknown."""
    return compressed / ratio if ratio else None


def from_means(metrics: Mapping[str, Mapping[str, float]], guest: str) -> MemoryBreakdown | None:
    """Return one guest's parts over a phase, from the phase's means (entity → metric → mean).

    None if its balloon was not observed.
    """
    guest_metrics, container_metrics = metrics.get(f"guest:{guest}", {}), metrics.get(f"container:{guest}", {})
    held = hypervisor_memory(
        guest_metrics.get("qemu.anon"),
        guest_metrics.get("qemu.shared"),
        container_metrics.get("memory.anon"),
        container_metrics.get("memory.shmem"),
    )
    if held is None or "guest.memory_balloon_actual" not in guest_metrics or "guest.memory_configured" not in guest_metrics:
        return None
    swap = container_metrics.get("memory.swap", guest_metrics.get("qemu.swapped", 0.0))
    areas = [values for entity, values in metrics.items() if entity.startswith("swap:")]
    devices = [values for entity, values in metrics.items() if entity.startswith("zram:")]
    used, original = sum(values.get("swap.used", 0.0) for values in areas), sum(values.get("zram.orig_data", 0.0) for values in devices)
    share = (
        container_metrics["memory.zswapped"] / swap
        if "memory.zswapped" in container_metrics and swap > 0 and not devices
        else compressed_share(used, original)
    )
    servers = (values for entity, values in metrics.items() if entity.startswith(f"server:{guest}/"))
    return breakdown(
        GuestMemoryReading(
            configured=guest_metrics["guest.memory_configured"],
            actual=guest_metrics["guest.memory_balloon_actual"],
            hypervisor=held,
            overhead=guest_metrics.get("qemu.overhead", 0.0),
            swapped=swap,
            compressed_share=share,
            free=guest_metrics.get("guest.free"),
            pg_balloon=sum(values.get("balloon.bytes", 0.0) for values in servers),
        )
    )


def hypervisor_memory(anon: float | None, shared: float | None, group_anon: float | None, group_shared: float | None) -> float | None:
    """Return private and shared memory of a guest's hypervisor: of its process if read, otherwise of its cgroup."""
    if anon is not None:
        return anon + (shared or 0.0)
    return group_anon + (group_shared or 0.0) if group_anon is not None else None
