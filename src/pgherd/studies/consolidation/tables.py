"""The tables of a consolidation study. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgherd.analysis import overcommitment
from pgherd.model.finding import Finding
from pgherd.studies.consolidation import published
from pgherd.studies.consolidation.options import APART, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.seen import Seen, Trials, shares_cpu
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import Point

Row = dict[str, Finding | str | int | float | None]
NOT_RUN = "no trial of it finished"
_UNSEEN = "the containers' CPU was not seen; the runtime cgroup shows it"


def mean(values: Sequence[float | None], unit: str, absent: str, note: str = "") -> Finding:
    """Mean over blocks as a finding, or why there is none."""
    known = [value for value in values if value is not None]
    return as_finding(overcommitment.block_mean(known), unit, note) if known else missing(unit, absent)


def scheme_rows(options: ConsolidationOptions, trials: Trials) -> list[Row]:
    """One row for each combination of buffers, rate and scheme: E4's table, and what else is known of it."""
    rows: list[Row] = []
    for point in points(options):
        rows.append(_scheme_row(options, trials, point))
    for scheme, why in options.unavailable.items():
        rows.append({"scheme": scheme, "what": SCHEMES[scheme], "throughput": missing(options.unit, f"not available: {why}")})
    return rows


def _scheme_row(options: ConsolidationOptions, trials: Trials, point: Point) -> Row:
    scheme, percent, rate = int(point["scheme"]), int(point["buffers"]), float(point["rate"])
    of = trials.of(point)
    killed = sum(bool(result.memory_kills) for result in of)
    absent = "the kernel ended servers for want of memory" if killed else NOT_RUN
    beside = published.BASELINES.get((percent, scheme)) if rate == 0 and options.enters_orders else None
    varied = published.VARIATION.get((percent, scheme))
    unseen = _UNSEEN if any(one is not None for one in trials.blocks(point)) else absent
    whose = "each database has vCPUs of its own" if scheme in APART else "nothing limits a container's vCPUs"

    def cell(take: Callable[[Seen], float | None], unit: str, why: str = absent, note: str = "") -> Finding:
        return mean(trials.values(point, take), unit, why, note)

    def with_published(finding: Finding, said: str | None) -> Finding:
        return finding if said is None else finding.model_copy(update={"experiment": "E4", "published": said})

    row: Row = {
        "buffers": percent,
        "rate": rate,
        "scheme": scheme,
        "what": SCHEMES[scheme],
        **({"available": round(options.available(rate) / 2**20) if rate > 0 else None} if any(options.rates) else {}),
        "throughput": with_published(
            cell(lambda one: one.throughput, options.unit), f"{beside.notpm:,.2f} {options.unit}" if beside else None
        ),
        "corrected": cell(lambda one: one.corrected, options.unit, note="with the quiet databases' share once more, as E4 does it")
        if shares_cpu(options, scheme)
        else missing(options.unit, f"no correction: {whose}"),
        "ratio": ratio_to_first(options, trials, point),
        **({"corrected_ratio": ratio_to_first(options, trials, point, correct=True)} if uneven(options) else {}),
        **({"normalised": normalised(options, trials, point)} if any(options.rates) else {}),
        "variation": with_published(
            cell(lambda one: None if one.variation is None else 100 * one.variation, "%"),
            f"{varied} %" if beside and varied is not None else None,
        ),
        "cpu_used": with_published(
            cell(lambda one: None if one.used is None else 100 * one.used, "%", unseen), f"{beside.cpu:,.2f} %" if beside else None
        ),
        "per_core": with_published(
            cell(lambda one: one.per_core, f"{options.unit}/core", unseen),
            f"{beside.per_core:,.2f} {options.unit}/core" if beside else None,
        ),
        "trials": len(of),
        "tainted": sum(result.tainted for result in of),
        "killed": killed,
    }
    return row


def uneven(options: ConsolidationOptions) -> bool:
    """Whether some schemes' databases share vCPUs where others' have their own: then a ratio is one of CPUs too."""
    return len({shares_cpu(options, scheme) for scheme in options.runnable}) > 1


def ratio_to_first(options: ConsolidationOptions, trials: Trials, point: Point, *, correct: bool = False) -> Finding:
    """A scheme's throughput over the first scheme's at the same buffers and rate, by block; ``correct``: with E4's correction of
    whichever of the two shares vCPUs."""
    scheme, first = int(point["scheme"]), options.runnable[0]
    if scheme == first:
        return missing("ratio", "the first scheme")
    words = None
    if float(point["rate"]) == 0 and options.enters_orders:
        words = published.corrected_ratio(scheme, first) if correct else published.ratio(int(point["buffers"]), scheme, first)

    def values(of: int) -> list[float | None]:
        corrects = correct and shares_cpu(options, of)
        return trials.values({**point, "scheme": of}, lambda one: one.corrected if corrects else one.throughput)

    experiment = "E4" if words else None
    found = overcommitment.block_ratio(values(scheme), values(first))
    if found is None:
        return missing("ratio", "no block has a number of both", experiment=experiment, published=words)
    note = f"against scheme {first}" + (", with E4's correction for shared vCPUs" if correct else "")
    return as_finding(found, "ratio", note, experiment=experiment, published=words)


def normalised(options: ConsolidationOptions, trials: Trials, point: Point) -> Finding:
    """Throughput over the same scheme's undercommitted baseline, by block (E5)."""
    if float(point["rate"]) == 0:
        return missing("ratio", "the baseline")
    found = overcommitment.block_ratio(trials.values(point, _throughput), trials.values({**point, "rate": 0.0}, _throughput))
    if found is None:
        killed = any(result.memory_kills for result in trials.of(point))
        why = "the kernel ended servers for want of memory" if killed else "no block has a number of both"
        return missing("ratio", why)
    return as_finding(found, "ratio", "against the same scheme undercommitted")


def _throughput(one: Seen) -> float | None:
    return one.throughput


def period_rows(options: ConsolidationOptions, trials: Trials) -> list[Row]:
    """Throughput of each database in each period, and the CPU of all containers then."""
    rows: list[Row] = []
    for point in points(options):
        blocks = [one for one in trials.blocks(point) if one is not None]
        if not blocks:
            continue
        for period in range(len(options.plan[0])):
            cores = [None if one.cores is None else 100 * one.cores[period] for one in blocks]
            for database in range(options.databases):
                rows.append(
                    {
                        "buffers": point["buffers"],
                        "rate": point["rate"],
                        "scheme": point["scheme"],
                        "period": period + 1,
                        "database": f"DB_{database + 1}",
                        "clients": options.plan[database][period],
                        "throughput": mean([one.periods[period][database].throughput for one in blocks], options.unit, NOT_RUN),
                        "cpu_used": mean(cores, "%", _UNSEEN, "of all containers") if database == 0 else None,
                    }
                )
    return rows


def kill_rows(trials: Trials) -> list[Row]:
    """Who was ended for want of memory, in which trial, and when."""
    rows: list[Row] = []
    for result in trials.results:
        for kill in result.memory_kills:
            rows.append(
                {
                    "trial": result.trial.key(),
                    "container": kill.container,
                    "processes": kill.processes,
                    "who": ", ".join(kill.names) or None,
                    "limit": kill.limit,
                    "seconds_into_trial": round(kill.at - result.started, 1),
                    "said": (result.error or "").split("\n")[0],
                }
            )
    return rows


def published_rows() -> list[Row]:
    """E4's own table."""
    return [
        {
            "buffers": percent,
            "scheme": scheme,
            "what": SCHEMES[scheme],
            "notpm": one.notpm,
            "cpu_used": one.cpu,
            "per_core": one.per_core,
            "variation": published.VARIATION.get((percent, scheme)),
        }
        for (percent, scheme), one in published.BASELINES.items()
    ]


def readings_rows(options: ConsolidationOptions, readings: Sequence[tuple[int, str]]) -> list[Row]:
    """What E5 or E6 read off its curves, for sizes of buffers that were measured, and why ours are not held against it."""
    why = "no: containers share one kernel" if options.runtime != "vm" else "stands beside: other hardware, and another workload"
    return [{"buffers": percent, "reading": said, "judged": why} for percent, said in readings if percent in options.buffers]
