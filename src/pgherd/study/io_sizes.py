"""How large the requests were that each device got, of traced trials: a row per point, device, direction and size. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.io_pattern import ENOUGH
from pgherd.model.finding import Finding
from pgherd.model.io_view import DeviceView, Direction
from pgherd.model.result import TrialResult
from pgherd.study.findings import as_finding

Row = dict[str, Finding | str | int | float | None]
SIZES_TABLE = "io_sizes"
MIN_SIZE_PERCENT = 1.0
"""Per cent of a direction's requests: sizes that fewer have are taken together."""
DIRECTIONS: tuple[Direction, ...] = ("read", "write")
SIZES_METHOD = "traced requests as the device got them, after merging; mean over trials, Student's t interval"


def size_rows(point: str, trials: Sequence[TrialResult], devices: Mapping[str, DeviceView], roles: Mapping[str, str]) -> list[Row]:
    """The rows of one point, the most frequent size first; ``request_bytes`` is None in the row of all rarer sizes. A direction with hardly
    any requests has none.

    Args:
        point: in words.
        trials: those that count.
        devices: number → a device.
        roles: number → what lies on the device, in words.
    """
    rows: list[Row] = []
    for number, device in devices.items():
        for direction in DIRECTIONS:
            counts = [found for trial in trials if (found := _counts(trial, number, direction))]
            together = sum(counts, Counter[int]())
            if together.total() < ENOUGH:
                continue
            shown = [size for size, count in together.most_common() if size and 100 * count >= MIN_SIZE_PERCENT * together.total()]
            of = {size: [100 * found[size] / found.total() for found in counts] for size in shown}
            rest = [100 * sum(many for size, many in found.items() if size not in of) / found.total() for found in counts]
            shares_of: list[tuple[int | None, list[float]]] = [*of.items()]
            for size, shares in [*shares_of, *([(None, rest)] if len(shown) < len(together) else [])]:
                mean = mean_interval(shares)
                if mean.low is not None and mean.high is not None:  # no share lies beyond these, and so neither does an end
                    mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 100.0))
                share = as_finding(mean, "%", method=SIZES_METHOD)
                many = together.total() - sum(together[one] for one in shown) if size is None else together[size]
                head: Row = {"point": point, "device": device.name, "number": number, "roles": roles[number]}
                rows.append({**head, "direction": direction, "request_bytes": size, "requests": many, "share": share})
    return rows


def _counts(result: TrialResult, number: str, direction: Direction) -> Counter[int]:
    """Size in bytes → requests of one trial; under 0 what was not counted by its size."""
    found: Counter[int] = Counter()
    for phase in result.phases:
        for view in phase.io.devices if phase.io is not None else ():
            if view.number == number and view.trace is not None and direction in view.trace:
                found.update(view.trace[direction].sizes)
    return found
