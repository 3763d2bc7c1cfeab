"""The answer in one sentence: of one curve, or of several held against the first."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.studies.scaling.curve import ENOUGH, Curve
from pgherd.studies.scaling.options import plural, scripts_of
from pgherd.studies.scaling.ratios import ratio_findings


def answer(lines: Sequence[Curve]) -> str:
    """What was found, with its numbers."""
    return _one(lines[0]) if len(lines) == 1 else _several(lines)


def _one(line: Curve) -> str:
    best = line.points[line.best]
    server = f"One PostgreSQL {line.options.pg_version} on {_cores(line)}"
    made = f"{best.median:,.0f} tps ({scripts_of(line.options)}) with {plural(best.clients)}"
    if len(line.points) == 1:
        return f"{server} made {made}; how it scales cannot be said from one number of clients."
    parts = [f"{server} peaks at {made}" if not line.at_edge else f"{server} makes {made}, the most that were measured", _linear(line)]
    if line.rising:
        parts.append("throughput still rises there, so that the peak lies beyond")
    else:
        parts.append(_beyond(line))
    return "; ".join(parts) + "."


def _cores(line: Curve) -> str:
    options = line.options
    if options.cpu_mode == "none":
        return f"{options.vcpus:g} core{'' if options.vcpus == 1 else 's'}"
    return f"{options.vcpus:g} vCPU"


def _linear(line: Curve) -> str:
    region = line.region
    if region.next is None:
        return f"it scales linearly up to {plural(region.end)}, as far as was measured"
    if line.loads.index(region.end) == 0:
        return f"it does not scale linearly beyond {plural(region.end)}"
    return f"it scales linearly up to {plural(region.end)}"


def _beyond(line: Curve) -> str:
    """What more clients bring, or fewer."""
    enough, best = line.points[line.saturation()], line.points[line.best]
    parts = []
    if enough is not best:
        parts.append(f"{plural(enough.clients)} already make {100 * enough.median / best.median:.0f} % of that")
    if line.turning.falls:
        loss = 100 * (1 - line.turning.ratio.value)
        parts.append(f"{plural(line.loads[-1])} make {loss:.1f} % less than {line.turning.best:g}")
    elif not line.at_edge:
        parts.append(f"more than {plural(best.clients)} made no more")
    return ", and ".join(parts) or f"no smaller number comes within {100 * (1 - ENOUGH):.0f} % of that"


def _several(lines: Sequence[Curve]) -> str:
    base, ratios = lines[0], ratio_findings(lines)
    best = base.points[base.best]
    load = f" ({scripts_of(base.options)})" if len({scripts_of(line.options) for line in lines}) == 1 else ""
    text = f"'{base.variant}' {'peaks at' if not base.at_edge else 'makes'} {best.median:,.0f} tps with {plural(best.clients)}{load}"
    parts = [text]
    for line in lines[1:]:
        ratio = ratios[f"peak_ratio.{line.variant}"]
        own = line.points[line.best]
        said = f"'{line.variant}' at {own.median:,.0f} tps with {own.clients}"
        if ratio.value is None or ratio.low is None or ratio.high is None:
            parts.append(f"{said}: {ratio.value or 0:.2f} times that, without an interval")
            continue
        between = f"{ratio.low:.2f}–{ratio.high:.2f}"
        if ratio.low <= 1 <= ratio.high:
            parts.append(f"{said}: the two peaks cannot be told apart (ratio {ratio.value:.2f}, {between})")
        else:
            parts.append(f"{said}: {ratio.value:.2f} times that ({100 * (ratio.confidence or 0.95):.0f} % interval {between})")
    ends = ", ".join(f"{line.region.end:g}{'' if line.region.next else ' and more'} ('{line.variant}')" for line in lines)
    return "; ".join([*parts, f"linear up to {ends} clients"]) + "."
