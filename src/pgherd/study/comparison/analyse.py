"""Analysis of a comparison: answer, grade, findings, tables and warnings. Pure. Missing, failed or tainted trials never raise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pgherd.analysis.block_ratios import no_ratio_reason, paired_ratio
from pgherd.analysis.group_sequential import simultaneous
from pgherd.analysis.intervals import Estimate
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_seconds
from pgherd.study.comparison import answers, tables, variants
from pgherd.study.comparison.blocks import MIN_CLEAN_BLOCKS, Block, MetricSeries, all_series, complete_blocks, primary_series, used_blocks
from pgherd.study.comparison.metrics import METRICS
from pgherd.study.comparison.options import ALL_VARIANTS, CompareOptions
from pgherd.study.comparison.propose import alpha, decisions, propose
from pgherd.study.comparison.tables import ComparisonEstimates
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import check_warnings, qualify_answer

MAX_BLOCK_GAP_S = 30.0
"""Pause between two trials of a block, in seconds, above which the block is reported as interrupted."""
STEADIER_SHARE = 0.5
"""Share of the primary metric's noise below which CPU per transaction is recommended instead."""
AA_CONFIDENCE = 0.99
"""Confidence level of a difference in the A/A pair for a warning about the run."""


def analyse(options: CompareOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the ratios of all variants to the baseline by every metric, the answer in one sentence, and its grade."""
    blocks = complete_blocks(options, results)
    warnings = _trial_warnings(options, results, blocks)
    used = used_blocks(blocks, options.max_blocks)
    if not used:
        reason = "no block finished" if blocks else "no block is complete" if results else "no trial was run"
        stop = propose(options, results).stop
        return Analysis(answer=f"No result: {stop or reason}.", grade="C", warnings=warnings)
    series = all_series(options, used)
    try:
        primary = primary_series(options, used)
    except KeyError as error:
        return Analysis(answer=f"No result: {error.args[0]}.", grade="C", warnings=warnings)
    # Without further blocks, the rest of the error rate is spent on the existing ones.
    last = propose(options, results).stop is not None
    series = {**series, primary.metric.name: primary}
    decided = decisions(options, primary, last=last)
    others = {variant: _other_ratios(options, series, primary, variant, last) for variant in options.other_variants}
    estimates = ComparisonEstimates(options, blocks, used, primary, series, decided, others, _aa_ratios(options, series))
    grade = _grade(estimates)
    answer = answers.answer(estimates.options, primary.metric, decided, estimates.aa_ratios.get(primary.metric.name), len(used))
    answer = qualify_answer(answer, grade)
    if primary.unusable_reason(options):
        answer = f"No result: {primary.metric.label}: {primary.unusable_reason(options)}."
    return Analysis(
        answer=answer,
        grade=grade,
        findings=_findings(estimates),
        tables={
            "comparison": tables.comparison_rows(estimates),
            "differences": tables.difference_rows(options),
            "blocks": tables.block_rows(options, blocks, results),
            **({"by_host": tables.host_rows(estimates)} if len(options.hosts) > 1 else {}),
        },
        warnings=warnings + _warnings(estimates) + tables.host_warnings(estimates),
        next_steps=_look_at(estimates),
        figures={"series": tables.figure_data(estimates)},
    )


def _other_ratios(
    options: CompareOptions, series: Mapping[str, MetricSeries], primary: MetricSeries, variant: str, last: bool
) -> dict[str, Estimate]:
    pairs = {name: values.pair(options, variant) for name, values in series.items() if not values.unusable_reason(options)}
    if primary.metric.name not in pairs or no_ratio_reason(*pairs[primary.metric.name]) is not None:
        return {}
    return simultaneous(
        pairs,
        primary.metric.name,
        max_blocks=options.max_blocks,
        precision=options.precision,
        equivalence_margin=options.equivalence_margin,
        alpha=alpha(options),
        last=last,
    )


def _aa_ratios(options: CompareOptions, series: Mapping[str, MetricSeries], confidence: float = 0.95) -> dict[str, Estimate]:
    """Return the ratios of the A/A pair, by metric. They show the difference between two equal variants."""
    pairs = {name: values.pair(options, options.aa_variant) for name, values in series.items() if not values.unusable_reason(options)}
    return {name: paired_ratio(*pair, confidence) for name, pair in pairs.items() if no_ratio_reason(*pair) is None}


def _findings(estimates: ComparisonEstimates) -> dict[str, Finding]:
    options, count = estimates.options, len(estimates.used)
    findings = {"blocks": Finding(value=count, unit="blocks", n=count, method="used blocks", note=_blocks_note(estimates))}
    note = "" if estimates.clean else "only tainted blocks: an indication"
    for name in estimates.compared:
        for variant in options.other_variants:
            estimate = estimates.ratio(variant, name)
            key = f"ratio:{variant}:{name}"
            if estimate is None or not math.isfinite(estimate.value):
                findings[key] = missing("", answers.reason_without_ratio(estimates.every[name].pair(options, variant)))
            else:
                findings[key] = as_finding(estimate, "", note)
        if name in estimates.aa_ratios:
            findings[f"aa_ratio:{name}"] = as_finding(
                estimates.aa_ratios[name], "", "A/A pair: difference between two runs of the baseline"
            )
    return findings


def _blocks_note(estimates: ComparisonEstimates) -> str:
    tainted = sum(not block.clean for block in estimates.blocks)
    return f"of {len(estimates.blocks)} that were run, {tainted} tainted" if tainted else ""


def _grade(estimates: ComparisonEstimates) -> Grade:
    """Return the grade.

    A: every variant was compared, every tainting check passed in the used blocks, a clean rerun replaced every tainted block, and the A/A
    pair shows no difference.
    C: fewer than three clean blocks. B: all other cases.
    """
    if not estimates.clean or all(decision is None for decision in estimates.decided.values()):
        return "C"
    checks = [check for block in estimates.used for result in block.all for check in result.checks if check.severity == "taint"]
    whole = None not in estimates.decided.values() and all(check.result == "pass" for check in checks)
    return "A" if whole and not _unreplaced_blocks(estimates) and not _aa_differs(estimates) else "B"


def _unreplaced_blocks(estimates: ComparisonEstimates) -> int:
    """Return the number of planned blocks without a clean result. A rerun replaces one of them, however many tainted reruns precede it."""
    planned = sum(not block.all[0].trial.reason.startswith("rerun") for block in estimates.blocks)
    return max(planned - sum(block.clean for block in estimates.blocks), 0)


def _aa_differs(estimates: ComparisonEstimates) -> bool:
    """Return True if the A/A pair shows a difference. Its cause is chance or an effect of the order."""
    ratio = _aa_ratios(estimates.options, {"primary": estimates.primary}, AA_CONFIDENCE).get("primary")
    return ratio is not None and ratio.low is not None and ratio.high is not None and (ratio.low > 1 or ratio.high < 1)


def _trial_warnings(options: CompareOptions, results: Sequence[TrialResult], blocks: Sequence[Block]) -> list[str]:
    warnings = []
    for name in (*options.block_variants, ALL_VARIANTS):
        failed = [result for result in results if result.trial.point.get(VARIANT) == name and result.error is not None]
        if failed:
            count = "A trial" if len(failed) == 1 else f"{len(failed)} trials"
            warnings.append(
                f"{count} of {'all variants (interleaved)' if name == ALL_VARIANTS else name} did not finish: {failed[-1].error}"
            )
    tainted = [block for block in blocks if not block.clean]
    if tainted:
        checks = Counter(v.name for block in tainted for result in block.all for v in result.checks if v.taints)
        causes = ", ".join(f"{check} ({count})" for check, count in checks.most_common()) or "failed trials"
        clean = len(blocks) - len(tainted)
        use = "left out" if clean >= min(MIN_CLEAN_BLOCKS, sum(block.finished for block in blocks)) else "used as fallback"
        warnings.append(f"{len(tainted)} of {len(blocks)} blocks have a tainted trial, by {causes}; they are {use}")
    return warnings + check_warnings(results)


def _warnings(estimates: ComparisonEstimates) -> list[str]:
    options, warnings = estimates.options, []
    if common := variants.common_points(options):
        points = ", ".join(sorted(common, key=lambda point: (len(point), point)))
        warnings.append(f"The variants have different points: each mean is over the common ones, {points}")
    if _aa_differs(estimates):
        aa_ratio = estimates.aa_ratios[estimates.primary.metric.name]
        change = answers.as_change(aa_ratio.value, aa_ratio.low, aa_ratio.high)
        warnings.append(
            f"{options.baseline} differs from itself ({change}), which happens by chance in one of a hundred runs: "
            "treat differences of this size as noise"
        )
    for variant, decision in estimates.decided.items():
        if decision is None:
            reason = answers.reason_without_ratio(estimates.primary.pair(options, variant))
            warnings.append(f"{variant} cannot be compared by {estimates.primary.metric.label}: {reason}")
    for block in estimates.used:
        if block.gap > MAX_BLOCK_GAP_S:
            warnings.append(f"Block {block.number} was interrupted for {format_seconds(block.gap)}: its pairs are far apart in time")
    reasons: dict[str, list[str]] = {}
    # Without servers (volumes, links), missing server metrics need no warning.
    has_servers = any(True for block in estimates.used for result in block.all for _ in result.trial.deployment.servers())
    for name in METRICS:
        reason = estimates.every[name].unusable_reason(options)
        not_measured = all(value is None for values in estimates.every[name].values.values() for value in values)
        if reason and name != estimates.primary.metric.name and not (not_measured and (METRICS[name].rare or not has_servers)):
            reasons.setdefault(reason, []).append(estimates.every[name].metric.label)
    warnings += [f"Left out: {', '.join(labels)}: {reason}" for reason, labels in reasons.items()]
    return warnings


def _look_at(estimates: ComparisonEstimates) -> list[str]:
    options, hints = estimates.options, []
    for variant in options.other_variants:
        changes = []
        for name in estimates.compared[1:]:
            estimate, metric = estimates.ratio(variant, name), estimates.every[name].metric
            if estimate is not None and answers.outcome_of(estimate, options.equivalence_margin) in ("higher", "lower"):
                changes.append(f"{metric.label} {answers.as_change(estimate.value, estimate.low, estimate.high)}")
        if changes:
            hints.append(f"{variant} differs significantly from {options.baseline} in other metrics: " + "; ".join(changes))
    steadier = _steadier_metric(estimates)
    if steadier:
        hints.append(steadier)
    more = [decision.blocks_needed for decision in estimates.decided.values() if decision is not None and decision.blocks_needed]
    if more:
        blocks = len(estimates.used) + max(more)
        spent = sum(result.ended - result.started for block in estimates.blocks for result in block.all)
        seconds = spent / len(estimates.blocks) * blocks
        hints.append(f"A run that is likely to decide: --max-blocks {blocks} --time-budget {max(1, math.ceil(seconds * 1.1 / 60))}m")
    return hints


def _steadier_metric(estimates: ComparisonEstimates) -> str:
    """Return a hint if the A/A pair shows that CPU per transaction has less noise than an inconclusive primary metric."""
    name, other = estimates.primary.metric.name, "cpu_per_tx"
    if name == other or all(decision is None or decision.outcome != answers.INCONCLUSIVE for decision in estimates.decided.values()):
        return ""
    noise, other_noise = (answers.max_deviation(estimates.aa_ratios[key]) if key in estimates.aa_ratios else None for key in (name, other))
    if noise is None or other_noise is None or other_noise > STEADIER_SHARE * noise:
        return ""
    return (
        f"CPU per transaction has less noise here than {estimates.primary.metric.label}: {estimates.options.baseline} differs "
        f"from itself (A/A) by at most {100 * other_noise:.1f} %, compared with {100 * noise:.1f} %; use it with --metric {other}"
    )
