"""What stands behind the curve: was it CPU-bound, what does the platform take (E2), was it fair, what did pgherd cost?"""

from __future__ import annotations

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.model.finding import Finding
from pgherd.studies.density import published
from pgherd.studies.density.curve import Curve
from pgherd.studies.density.points import Point, plural
from pgherd.studies.density.tables import efficiency_cpu
from pgherd.study.findings import as_finding, missing
from pgherd.study.repeats import NO_CONTAINER_CPU, PART_NOT_SEEN, mean_finding, named_parts, part_cpu

OVERHEAD_AT = 0.8
"""Fraction of saturation at which E2 reads the overhead."""


def evidence_findings(line: Curve) -> dict[str, Finding]:
    """efficiency_at_saturation, efficiency_cpu_at_saturation, overhead_*, cpu_bound_evidence, fairness, pgherd_cpu."""
    return {**_saturation(line), **_overhead_inferred(line), **_overhead_direct(line), **_bound(line), **_fairness(line), **_own(line)}


def _saturation(line: Curve) -> dict[str, Finding]:
    given = {"experiment": "E1", "published": published.EFFICIENCY_AT_SATURATION}
    found = {}
    estimate, note = line.efficiency_at(1.0, "one")
    if line.one is None:
        estimate, note = None, "one database alone was not measured"
    found["efficiency_at_saturation"] = (
        missing("ratio", note, **given) if estimate is None else as_finding(estimate, "ratio", note + "; all cores given out", **given)
    )
    linear, note = line.efficiency_at(1.0, "slope")
    found["efficiency_linear_at_saturation"] = missing("ratio", note) if linear is None else as_finding(linear, "ratio", note)
    index = line.near(1.0)
    found["efficiency_cpu_at_saturation"] = (
        missing("ratio", "no point at all cores was measured") if index is None else efficiency_cpu(line, line.points[index])
    )
    return found


def _overhead_inferred(line: Curve) -> dict[str, Finding]:
    """1 − measured / perfect at 80 % of saturation, as a share and in cores."""
    given = {"experiment": "E2", "published": published.OVERHEAD_INFERRED}
    bound = "an upper bound: boosting clocks of one database alone and contention between databases are in it"
    limit = _point_at(line, OVERHEAD_AT).limited_by
    if limit == "rate" or (limit == "quota" and line.options.cpu_mode == "quota"):
        # What the platform takes comes out of cores that the databases leave idle.
        what = "the rate" if limit == "rate" else "a CPU quota"
        bound = f"no bound: {what} limits the databases there, so that nothing is missing however much the platform takes"
    estimate, where = line.efficiency_at(OVERHEAD_AT, line.basis)
    if estimate is None:
        return {
            name: missing(unit, where, **given) for name, unit in (("overhead_inferred", "cores"), ("overhead_inferred_share", "ratio"))
        }
    against = "the one-database value" if line.basis == "one" else "the slope of the linear region"
    if estimate.value > 1:
        note = (
            f"measured is {100 * (estimate.value - 1):.1f} % above perfect (from {against}), {where}: no overhead can be inferred from that"
        )
        return {name: missing(unit, note, **given) for name, unit in (("overhead_inferred", "cores"), ("overhead_inferred_share", "ratio"))}
    low = None if estimate.high is None else 1 - estimate.high
    high = None if estimate.low is None else 1 - estimate.low
    share = Estimate(1 - estimate.value, low, high, estimate.confidence, estimate.n, "1 − measured ÷ perfect", estimate.note)
    note = f"{bound}; perfect from {against}, {where}"
    return {
        "overhead_inferred": as_finding(share.scaled(line.options.cores), "cores", note, **given),
        "overhead_inferred_share": as_finding(share, "ratio", note, **given),
    }


def _point_at(line: Curve, fraction: float) -> Point:
    """The point that stands for a fraction of the cores, or else the one before it."""
    index = line.near(fraction)
    if index is not None:
        return line.points[index]
    below = [point for point in line.points if line.options.fraction(point.databases) <= fraction]
    return below[-1] if below else line.points[0]


def _overhead_direct(line: Curve) -> dict[str, Finding]:
    """CPU used outside the containers at the point nearest to 80 % of the cores, and its named parts."""
    given = {"experiment": "E2", "published": published.OVERHEAD_DIRECT}
    fractions = [abs(line.options.fraction(n) - OVERHEAD_AT) for n in line.loads]
    point = line.points[min(range(len(fractions)), key=fractions.__getitem__)]
    where = f"at {plural(point.databases)}, {100 * line.options.fraction(point.databases):.0f} % of the cores"
    values = point.values(lambda o: o.cpu.platform)
    if not values:
        return {"overhead_direct": missing("cores", NO_CONTAINER_CPU, **given)}
    method = "all CPU used on the host outside the containers, without pgherd and clients"
    whole = mean_finding(point, lambda o: o.cpu.platform, "cores", NO_CONTAINER_CPU, where)
    found = {"overhead_direct": whole.model_copy(update={"method": method, **given})}
    for name in named_parts([point]):
        found[f"overhead_direct.{name}"] = mean_finding(point, part_cpu(name), "cores", PART_NOT_SEEN, where)
    return found


def _bound(line: Curve) -> dict[str, Finding]:
    """Mean share of their given CPU that the loaded containers used, over all points that fit into the cores."""
    given = {"experiment": "E1", "published": published.CPU_BOUND}
    if line.options.cpu_mode == "none":
        return {
            "cpu_bound_evidence": missing(
                "ratio", "the databases' CPU was not limited, so there is no share of what they were given", **given
            )
        }
    within = [point for point in line.points if line.options.fraction(point.databases) <= 1 + 1e-9]
    means = [sum(values) / len(values) for point in within if (values := point.values(lambda o: o.given))]
    if not means:
        return {"cpu_bound_evidence": missing("ratio", NO_CONTAINER_CPU, **given)}
    method = "CPU used ÷ CPU given, of the loaded containers; mean over the points up to 100 % of the cores"
    note = f"lowest point {100 * min(means):.1f} %; no interval: the points differ by design"
    trials = sum(len(point.values(lambda o: o.given)) for point in within)
    return {
        "cpu_bound_evidence": Finding(value=sum(means) / len(means), unit="ratio", n=trials, method=method, note=note, **given),
    }


def _fairness(line: Curve) -> dict[str, Finding]:
    """How evenly the databases shared, at the largest point that fits into the cores, and the worst of all points."""
    several = [point for point in line.points if point.databases > 1]
    if not several:
        return {"fairness": missing("ratio", "only one database was measured")}
    within = [point for point in several if line.options.fraction(point.databases) <= 1 + 1e-9]
    point = within[-1] if within else several[0]
    where = f"at {point.databases} databases"
    worst = min(several, key=lambda p: min(p.values(lambda o: o.min_max), default=1.0))
    least = f"slowest ÷ fastest at {worst.databases} databases, the least even"
    nothing = "nothing was measured per database"
    return {
        "fairness": mean_finding(point, lambda o: o.jain, "ratio", nothing, f"Jain's index {where}", most=1),
        "fairness_min_max": mean_finding(point, lambda o: o.min_max, "ratio", nothing, f"slowest ÷ fastest {where}", most=1),
        "fairness_worst": mean_finding(worst, lambda o: o.min_max, "ratio", nothing, least, most=1),
    }


def _own(line: Curve) -> dict[str, Finding]:
    values = [value for point in line.points for value in point.values(lambda o: o.cpu.pgherd)]
    if not values:
        return {"pgherd_cpu": missing("cores", "pgherd's own CPU was not seen")}
    return {"pgherd_cpu": as_finding(mean_interval(values), "cores", "pgherd with its sampling backends, over all trials")}
