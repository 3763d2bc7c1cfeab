"""What is to be said of "perfect": the two values of it differ, or more than perfect was measured."""

from __future__ import annotations

from pgherd.analysis.intervals import mean_interval
from pgherd.studies.density.curve import DIFFER, Basis, Curve
from pgherd.studies.density.points import Point, plural
from pgherd.studies.density.tables import efficiency_cpu


def perfect_warnings(line: Curve) -> list[str]:
    """Why the one-database value and the linear region's slope differ, or else why efficiency lies above 100 % somewhere."""
    if line.one is not None and line.difference is not None and abs(line.difference) > DIFFER:
        return [_different(line, line.one, line.difference)]
    return _above(line)


def _different(line: Curve, one: Point, difference: float) -> str:
    """Which way, whether chance explains it, why else it happens, and which one the answer uses."""
    how = "less" if difference > 0 else "more"
    alone = f"one database alone makes {one.mean:,.0f} tps, {100 * abs(one.mean / line.slope.value - 1):.0f} % {how} than each one makes "
    alone += f"in the linear region ({line.slope.value:,.0f} tps)"
    spread = mean_interval(one.throughputs)
    if spread.low is not None and spread.high is not None and spread.low <= line.slope.value <= spread.high:
        alone += ", which the spread of its repeats explains too"
    if difference > 0:
        return (
            f"The curve is super-linear: {alone}. Alone, a database pays by itself for what others share, such as waking idle virtual or "
            "sleeping CPUs, or the machine's neighbours slowed it, so that efficiency against the one-database value flatters; the "
            "databases held are judged against the slope"
        )
    return (
        f"The two values of perfect differ: {alone}. Alone, a database profits from boosting clocks, unshared caches or an idle SMT "
        "sibling, so that part of the lost efficiency is lost from the second database on; see efficiency_linear"
    )


def _above(line: Curve) -> list[str]:
    """Where more than perfect was measured, whether chance explains it, and what else does as far as CPU time shows."""
    basis: Basis = "slope" if line.one is None else "one"
    above = [index for index, value in enumerate(line.efficiencies(basis)) if value > 1 + DIFFER]
    if not above:
        return []
    said, beyond_chance = [], False
    for index in above:
        found = line.efficiency(index, basis)
        if found.low is None:
            spread = ", too few repeats for an interval"
        else:
            spread = ", within the spread of the repeats" if found.low <= 1 else ""
        beyond_chance = beyond_chance or not spread
        said.append(f"{100 * found.value:.0f} % at {plural(line.points[index].databases)}{spread}")
    cost = [value for index in above if (value := efficiency_cpu(line, line.points[index]).value) is not None]
    causes = "a clock that rises with the load, an idle virtual host that is slow to wake, or neighbours on the machine meanwhile"
    if line.one is None:
        why = f"One database alone was not measured, so CPU per transaction has nothing to be held against; usual causes are {causes}"
    elif not cost:
        why = f"Whether transactions took less CPU time there was not seen; usual causes are {causes}"
    elif max(cost) > 1 + DIFFER:
        why = f"Transactions took less CPU time there than alone (efficiency in CPU/tx up to {100 * max(cost):.0f} %): {causes}"
    else:
        why = "Transactions took no less CPU time there: one database alone waited for something else, or was given less CPU"
    weight = (
        "Perfect is too low then, and all efficiencies flatter"
        if beyond_chance
        else "It may as well be chance: more repeats (--repeats) would tell"
    )
    return [f"Efficiency lies above 100 %: {'; '.join(said)}. {why}. {weight}"]
