"""What a consolidation run says: each scheme's number, who holds up under overcommitment, what it rests on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis import overcommitment
from pgherd.analysis.intervals import LEAST, Estimate
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.consolidation import memory, published, tables
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.seen import Seen, Trials, shares_cpu
from pgherd.studies.consolidation.words import answer
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, majority_clean, qualify_answer, shortened_list, trial_warnings
from pgherd.study.trial_schedule import Point

_OF_ROW = ("throughput", "corrected", "variation", "cpu_used", "per_core", "ratio", "corrected_ratio", "normalised")


def analyse(options: ConsolidationOptions, results: Sequence[TrialResult]) -> Analysis:
    """Findings and tables of the run. Never raises for missing, tainted or killed trials: it says so."""
    trials = Trials(options, results)
    rows = tables.scheme_rows(options, trials)
    findings = _row_findings(rows) | _gains(options, trials) | _holding(options, trials) | _others(options, trials)
    findings |= memory.swap_findings(options, trials)
    over = options.enters_orders and any(options.rates)
    held = {
        "consolidation": rows,
        "periods": tables.period_rows(options, trials),
        "memory_kills": tables.kill_rows(trials),
        "published_e4": tables.published_rows() if options.enters_orders else [],
        "memory": memory.memory_rows(options, trials) if any(options.rates) else [],
        "published_e5": tables.readings_rows(options, published.READINGS_E5) if over else [],
        "published_e6": tables.readings_rows(options, published.READINGS_E6) if over else [],
    }
    given, text = grade(options, trials), answer(options, trials, rows)
    return Analysis(
        answer=qualify_answer(text, given) if trials.every() else text,
        grade=given,
        findings=findings,
        tables={name: found for name, found in held.items() if found},
        warnings=[*_warnings(options, trials), *trial_warnings(results, "a block"), *_tainted(options, trials)],
        look_at=_look_at(options),
    )


def name_of(quantity: str, *, scheme: int, buffers: int, rate: float) -> str:
    """``throughput.scheme3.buffers25``, and ``normalised.scheme3.buffers25.rate0.3`` where memory is overcommitted."""
    return f"{quantity}.scheme{scheme}.buffers{buffers}" + (f".rate{rate:g}" if rate else "")


def _row_findings(rows: Sequence[tables.Row]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for row in rows:
        if "rate" not in row:
            continue
        scheme, percent, rate = int(_number(row["scheme"])), int(_number(row["buffers"])), _number(row["rate"])
        for quantity in _OF_ROW:
            cell = row.get(quantity)
            if isinstance(cell, Finding) and cell.value is not None:
                found[name_of(quantity, scheme=scheme, buffers=percent, rate=rate)] = cell
    return found


def _number(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _throughput(one: Seen) -> float | None:
    return one.throughput


def _gains(options: ConsolidationOptions, trials: Trials) -> dict[str, Finding]:
    """What the largest buffers are worth against the smallest, undercommitted."""
    found = {}
    small, large = options.buffers[0], options.buffers[-1]
    for scheme in options.runnable if small != large else ():
        ratio = overcommitment.block_ratio(
            trials.values({"scheme": scheme, "buffers": large, "rate": 0.0}, _throughput),
            trials.values({"scheme": scheme, "buffers": small, "rate": 0.0}, _throughput),
        )
        beside = published.gain(scheme) if (small, large) == (25, 75) and options.enters_orders else None
        words = None if beside is None else f"{beside:.3f} ({published.SOURCE})"
        experiment = "E4" if words else None
        name = f"buffers_ratio.scheme{scheme}"
        if ratio is None:
            found[name] = missing("ratio", "no block has a number of both", experiment=experiment, published=words)
        else:
            found[name] = as_finding(ratio, "ratio", f"{large} % against {small} % buffers", experiment=experiment, published=words)
    return found


def _holding(options: ConsolidationOptions, trials: Trials) -> dict[str, Finding]:
    """How much better separate containers hold up than the first shared one, and the balloon's part, at each rate (E5)."""
    found = {}
    shared = next((scheme for scheme in options.runnable if scheme not in APART), None)
    for percent in options.buffers:
        for rate in [rate for rate in options.rates if rate > 0]:
            for scheme in [scheme for scheme in options.runnable if scheme in APART and shared is not None]:
                at, base = {"scheme": scheme, "buffers": percent, "rate": rate}, {"scheme": shared or 0, "buffers": percent, "rate": rate}
                alone, alone_base, all_, all_base = (
                    trials.values(point, _throughput) for point in (at, {**at, "rate": 0.0}, base, {**base, "rate": 0.0})
                )
                ratio = overcommitment.ratio_of_ratios(alone, alone_base, all_, all_base)
                if ratio is not None:
                    note = f"what scheme {scheme} keeps of its baseline over what scheme {shared} keeps"
                    beside = published.held_better(percent, scheme, rate) if options.enters_orders else None
                    found[name_of("held_better", scheme=scheme, buffers=percent, rate=rate)] = _beside_e5(ratio, note, beside)
            if {3, BALLOON} <= set(options.runnable):
                ratio = overcommitment.block_ratio(
                    trials.values({"scheme": BALLOON, "buffers": percent, "rate": rate}, _throughput),
                    trials.values({"scheme": 3, "buffers": percent, "rate": rate}, _throughput),
                )
                if ratio is not None:
                    name = f"balloon_ratio.buffers{percent}.rate{rate:g}"
                    beside = published.balloon_ratio(percent, rate) if options.enters_orders else None
                    found[name] = _beside_e5(ratio, f"scheme {BALLOON} over scheme 3: the database balloon's part", beside)
    return found


def _beside_e5(ratio: Estimate, note: str, beside: str | None) -> Finding:
    return as_finding(ratio, "ratio", note, experiment="E5" if beside else None, published=beside)


def _others(options: ConsolidationOptions, trials: Trials) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    skews = [skew for one in trials.every() for skew in one.skews]
    late = sum(one.late for one in trials.every())
    if skews:
        where = "all of them lie in ramp-ups, which are not counted"
        if late:
            where = f"in {late} of {len(skews)} periods a database began only after the ramp-up: a longer --ramp keeps that out"
        found["switch_skew"] = Finding(
            value=1000 * max(skews),
            unit="ms",
            n=len(skews),
            method="largest distance between the databases' first transactions of a period, over all periods",
            note=f"no interval: it is the largest that was seen; {where}",
        )
    honest, needed = options.honest(), options.needed()
    if honest is not None and needed is not None:
        note = f"working sets as given; {options.configured >> 20} MB are configured"
        found["working_sets"] = Finding(value=needed / 2**20, unit="MB", n=1, method="sum of the busiest period", note=note)
        found["honest_rate"] = Finding(value=honest, unit="share", n=1, method="1 − working sets ÷ configured memory (E7)", note=note)
    return found


def grade(options: ConsolidationOptions, trials: Trials) -> Grade:
    """A: everything that was planned has a clean trial in every block, all its verdicts passed, and there are blocks enough for an
    interval. C: half of the combinations that have a number, or more, are not mostly of clean trials. B: between. What the kernel ended
    for want of memory is a finding, and lowers nothing.
    """
    judged = [trials.blocks(point) for point in points(options) if not _all_killed(trials.of(point))]
    clean = [_clean(blocks) for blocks in judged if any(blocks)]
    used = {one.key for blocks in judged for one in blocks if one is not None}
    whole = options.blocks >= LEAST and all(one is not None and one.clean for blocks in judged for one in blocks)
    return grade_of(clean, used, trials.results, whole=whole)


def _clean(blocks: Sequence[Seen | None]) -> bool:
    """Whether a combination's number rests mostly on clean trials: where a block has none, its tainted one stands in."""
    return majority_clean([one.clean for one in blocks if one is not None])


def _tainted(options: ConsolidationOptions, trials: Trials) -> list[str]:
    """What must be said of combinations that have no number, or one that rests on tainted trials; of killed ones the answer says why."""
    judged = {_named(point): trials.blocks(point) for point in points(options) if not _all_killed(trials.of(point))}
    absent = [name for name, blocks in judged.items() if not any(blocks)]
    if len(absent) == len(judged):
        return []  # which the answer says
    said = []
    if absent:
        said.append(f"No finished trial for {shortened_list(absent)}")
    clean = {name: _clean(blocks) for name, blocks in judged.items() if name not in absent}
    only = shortened_list([name for name, is_clean in clean.items() if not is_clean])
    what = "Only tainted trials" if options.blocks == 1 else "Tainted trials in half of the blocks or more"
    return said + fallback_warnings(list(clean.values()), only, what=what)


def _named(point: Point) -> str:
    """``M/M/M with 25 % buffers, 40 % overcommitted``."""
    rate = f", {100 * _number(point['rate']):g} % overcommitted" if point["rate"] else ""
    return f"{SCHEMES[int(point['scheme'])]} with {point['buffers']} % buffers{rate}"


def _all_killed(results: Sequence[TrialResult]) -> bool:
    return bool(results) and all(result.memory_kills for result in results)


def _warnings(options: ConsolidationOptions, trials: Trials) -> list[str]:
    said = []
    if options.blocks < LEAST:
        blocks = "One block" if options.blocks == 1 else f"{options.blocks} blocks"
        said.append(f"{blocks}: no interval, so no difference is claimed; --blocks {LEAST} or more gives intervals")
    for scheme, why in options.unavailable.items():
        said.append(f"Scheme {scheme} ({SCHEMES[scheme]}) was not measured: {why}")
    if options.runtime == "cgroup":
        said.append(
            "Under cgroup all containers share one kernel: no guest has a kernel, a page cache or a balloon of its own. This says nothing "
            "about virtual machines, and is not judged against E5's published curve; E4's table is shown for its shape"
        )
    elif options.runtime == "process":
        said.append(
            "Without control groups nothing limits the databases' memory: the schemes differ in their servers, buffers and vCPUs only"
        )
    elif options.runtime == "vm":
        said.append(
            "What a guest's hypervisor needs for itself is taken from the memory that all of them have together, so that schemes 3 and 4, "
            "with more guests, have less of it left. Guests have no swap of their own: what their balloons do not give up, the host "
            "compresses or swaps without their knowing"
        )
    if any(shares_cpu(options, scheme) for scheme in options.runnable) and any(scheme in APART for scheme in options.runnable):
        more = options.databases * options.vcpus
        said.append(
            f"Schemes 3 and 4 have {more:g} vCPUs in all, schemes 1 and 2 {options.vcpus:g}, as in E4; E4's correction, which adds their "
            "quiet databases' throughput once more, stands beside the raw numbers"
        )
    honest = options.honest()
    if any(options.rates) and honest is None:
        said.append("No working sets were given: up to which rate overcommitment is honest is not known ('pgherd working-set' finds them)")
    killed = sorted({kill.container for result in trials.results for kill in result.memory_kills})
    if killed:
        many = sum(bool(result.memory_kills) for result in trials.results)
        said.append(
            f"In {many} trial{'' if many == 1 else 's'} the kernel ended processes for want of memory (container {', '.join(killed)}): "
            "a finding, see the table of memory kills"
        )
    return said


def _look_at(options: ConsolidationOptions) -> list[str]:
    found = []
    if options.blocks < LEAST:
        found.append(f"--blocks {LEAST}: intervals, for claims")
    if not any(options.rates) and options.runtime in ("cgroup", "vm"):
        found.append("--rates 0,0.2,0.4,0.55: how far memory can be overcommitted in each scheme")
    return found
