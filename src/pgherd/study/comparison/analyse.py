"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.paired import paired_ratio, why_no_ratio
from pgherd.analysis.sequential import simultaneous
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_seconds
from pgherd.study.comparison import answers, tables
from pgherd.study.comparison.blocks import MIN_CLEAN_BLOCKS, Block, MetricSeries, all_series, complete_blocks, primary_series, used_blocks
from pgherd.study.comparison.metrics import METRICS
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.propose import alpha, decisions, propose
from pgherd.study.comparison.tables import ComparisonEstimates
from pgherd.study.comparison.time_slices import ALL_VARIANTS, VARIANT
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import check_warnings

MAX_BLOCK_GAP_S = 30.0
"""Seconds between two trials of a block from which on it is said to have been interrupted."""
STEADIER_SHARE = 0.5
"""Share of another metric's noise floor below which CPU per transaction is recommended in its place."""
AA_CONFIDENCE = 0.99
"""Confidence at which the A/A pair must show a difference before the run itself is called into question."""


def analyse(options: CompareOptions, results: Sequence[TrialResult]) -> Analysis:
    """The ratios of all variants to the baseline by every metric, one sentence as the answer, and its grade."""
    blocks = complete_blocks(options, results)
    warnings = _trial_warnings(options, results, blocks)
    used = used_blocks(blocks, options.most)
    if not used:
        said = "no block could be finished" if blocks else "no block is whole" if results else "no trial was run"
        stop = propose(options, results).stop
        return Analysis(answer=f"Nothing can be said: {stop or said}.", grade="C", warnings=warnings)
    every = all_series(options, used)
    try:
        primary = primary_series(options, used)
    except KeyError as error:
        return Analysis(answer=f"Nothing can be said: {error.args[0]}.", grade="C", warnings=warnings)
    # When no further block will come, what is left of the error rate is used on those there are.
    last = propose(options, results).stop is not None
    every = {**every, primary.metric.name: primary}
    decided = decisions(options, primary, last=last)
    others = {side: _others(options, every, primary, side, last) for side in options.variants}
    found = ComparisonEstimates(options, blocks, used, primary, every, decided, others, _floors(options, every))
    grade = _grade(found)
    answer = answers.answer(found.options, primary.metric, decided, found.floor.get(primary.metric.name), len(used))
    if primary.why_not(options):
        answer = f"Nothing can be said: {primary.metric.label}: {primary.why_not(options)}."
    return Analysis(
        answer=f"Indication only: {answer}" if grade == "C" else answer,
        grade=grade,
        findings=_findings(found),
        tables={
            "comparison": tables.comparison_rows(found),
            "differences": tables.difference_rows(options),
            "blocks": tables.block_rows(options, blocks, results),
            **({"by_host": tables.host_rows(found)} if len(options.hosts) > 1 else {}),
        },
        warnings=warnings + _warnings(found) + tables.host_warnings(found),
        look_at=_look_at(found),
        figures={"series": tables.figure_data(found)},
    )


def _others(
    options: CompareOptions, every: Mapping[str, MetricSeries], primary: MetricSeries, side: str, last: bool
) -> dict[str, Estimate]:
    pairs = {name: series.pair(options, side) for name, series in every.items() if not series.why_not(options)}
    if primary.metric.name not in pairs or why_no_ratio(*pairs[primary.metric.name]) is not None:
        return {}
    return simultaneous(
        pairs,
        primary.metric.name,
        most=options.most,
        precision=options.precision,
        equivalence=options.equivalence,
        alpha=alpha(options),
        last=last,
    )


def _floors(options: CompareOptions, every: Mapping[str, MetricSeries], confidence: float = 0.95) -> dict[str, Estimate]:
    """The ratio of the baseline to itself: what two runs of one thing differ by."""
    pairs = {name: series.pair(options, options.again) for name, series in every.items() if not series.why_not(options)}
    return {name: paired_ratio(*pair, confidence) for name, pair in pairs.items() if why_no_ratio(*pair) is None}


def _findings(found: ComparisonEstimates) -> dict[str, Finding]:
    options, count = found.options, len(found.used)
    findings = {"blocks": Finding(value=count, unit="blocks", n=count, method="blocks that count", note=_blocks_note(found))}
    note = "" if found.clean else "only tainted blocks: an indication"
    for name in found.compared:
        for side in options.variants:
            estimate = found.ratio(side, name)
            key = f"ratio:{side}:{name}"
            if estimate is None or not math.isfinite(estimate.value):
                findings[key] = missing("", answers.reason_without_ratio(found.every[name].pair(options, side)))
            else:
                findings[key] = as_finding(estimate, "", note)
        if name in found.floor:
            findings[f"floor:{name}"] = as_finding(found.floor[name], "", "the A/A pair: what two runs of the baseline differ by")
    return findings


def _blocks_note(found: ComparisonEstimates) -> str:
    tainted = sum(not block.clean for block in found.blocks)
    return f"of {len(found.blocks)} that were run, {tainted} tainted" if tainted else ""


def _grade(found: ComparisonEstimates) -> Grade:
    """A: every taint verdict passed in the blocks that the numbers rest on, every tainted block was run again and then was
    clean, and the A/A pair shows no difference. C: fewer than three clean blocks. B: everything between."""
    if not found.clean or all(decision is None for decision in found.decided.values()):
        return "C"
    verdicts = [v for block in found.used for result in block.all for v in result.verdicts if v.severity == "taint"]
    return "A" if all(v.result == "pass" for v in verdicts) and not _left_tainted(found) and not _self_differs(found) else "B"


def _left_tainted(found: ComparisonEstimates) -> int:
    """Tainted blocks in whose place no clean one was run."""
    tainted = sum(not block.clean for block in found.blocks)
    again = sum(block.clean and block.all[0].trial.reason.startswith("rerun") for block in found.blocks)
    return max(tainted - again, 0)


def _self_differs(found: ComparisonEstimates) -> bool:
    """Whether the baseline differs from itself, which only chance or an effect of the order could make."""
    sure = _floors(found.options, {"primary": found.primary}, AA_CONFIDENCE).get("primary")
    return sure is not None and sure.low is not None and sure.high is not None and (sure.low > 1 or sure.high < 1)


def _trial_warnings(options: CompareOptions, results: Sequence[TrialResult], blocks: Sequence[Block]) -> list[str]:
    found = []
    for side in (*options.sides, ALL_VARIANTS):
        failed = [result for result in results if result.trial.point.get(VARIANT) == side and result.error is not None]
        if failed:
            many = "A trial" if len(failed) == 1 else f"{len(failed)} trials"
            found.append(f"{many} of {'all variants by turns' if side == ALL_VARIANTS else side} did not finish: {failed[-1].error}")
    tainted = [block for block in blocks if not block.clean]
    if tainted:
        checks = Counter(v.check for block in tainted for result in block.all for v in result.verdicts if v.taints)
        why = ", ".join(f"{check} ({count})" for check, count in checks.most_common()) or "trials that did not finish"
        clean = len(blocks) - len(tainted)
        fate = "left out" if clean >= min(MIN_CLEAN_BLOCKS, sum(block.finished for block in blocks)) else "all there is to go by"
        found.append(f"{len(tainted)} of {len(blocks)} blocks hold a tainted trial, by {why}; they are {fate}")
    return found + check_warnings(results)


def _warnings(found: ComparisonEstimates) -> list[str]:
    options, said = found.options, []
    if _self_differs(found):
        floor = found.floor[found.primary.metric.name]
        by = answers.as_change(floor.value, floor.low, floor.high)
        said.append(
            f"{options.baseline} differs from itself ({by}), which chance alone would do in one run of a hundred: "
            "take differences of that size for noise"
        )
    for side, decision in found.decided.items():
        if decision is None:
            reason = answers.reason_without_ratio(found.primary.pair(options, side))
            said.append(f"{side} cannot be compared by {found.primary.metric.label}: {reason}")
    for block in found.used:
        if block.gap > MAX_BLOCK_GAP_S:
            said.append(f"Block {block.number} was interrupted for {format_seconds(block.gap)}: its pairs lie far apart in time")
    reasons: dict[str, list[str]] = {}
    # Where no server is deployed (volumes, links), nobody misses what only servers have.
    served = any(True for block in found.used for result in block.all for _ in result.trial.deployment.servers())
    for name in METRICS:
        why = found.every[name].why_not(options)
        unseen = all(value is None for values in found.every[name].values.values() for value in values)
        if why and name != found.primary.metric.name and not (unseen and (METRICS[name].rare or not served)):
            reasons.setdefault(why, []).append(found.every[name].metric.label)
    said += [f"Left out: {', '.join(labels)}: {why}" for why, labels in reasons.items()]
    return said


def _look_at(found: ComparisonEstimates) -> list[str]:
    options, said = found.options, []
    for side in options.variants:
        told = []
        for name in found.compared[1:]:
            estimate, metric = found.ratio(side, name), found.every[name].metric
            if estimate is not None and answers.outcome_of(estimate, options.equivalence) in ("higher", "lower"):
                told.append(f"{metric.label} {answers.as_change(estimate.value, estimate.low, estimate.high)}")
        if told:
            said.append(f"{side} differs from {options.baseline} for certain in other metrics: " + "; ".join(told))
    steadier = _steadier(found)
    if steadier:
        said.append(steadier)
    more = [decision.more for decision in found.decided.values() if decision is not None and decision.more]
    if more:
        blocks = len(found.used) + max(more)
        spent = sum(result.ended - result.started for block in found.blocks for result in block.all)
        seconds = spent / len(found.blocks) * blocks
        said.append(f"a run that is likely to tell: --blocks {blocks} --budget {max(1, math.ceil(seconds * 1.1 / 60))}m")
    return said


def _steadier(found: ComparisonEstimates) -> str:
    """That CPU per transaction scatters less here than the metric that could not tell, where the A/A pair shows so."""
    name, other = found.primary.metric.name, "cpu_per_tx"
    if name == other or all(decision is None or decision.verdict != answers.INCONCLUSIVE for decision in found.decided.values()):
        return ""
    mine, theirs = (answers.max_deviation(found.floor[one]) if one in found.floor else None for one in (name, other))
    if mine is None or theirs is None or theirs > STEADIER_SHARE * mine:
        return ""
    return (
        f"CPU per transaction is steadier here than {found.primary.metric.label}: {found.options.baseline} differs from itself (A/A) by "
        f"{100 * theirs:.1f} % at most, against {100 * mine:.1f} %; --metric {other} lets it decide"
    )
