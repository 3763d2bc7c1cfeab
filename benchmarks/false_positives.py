"""Simulated comparisons: how often two equal variants are called different, and what the intervals and outcomes are worth.

Many studies of noise alone, with trials in the order a study runs them (blocks in random order, the baseline twice) and
pgherd's own rule for looking and stopping. See docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import outcome as result
from outcome import Figure, Outcome
from studies_simulated import ARMS, MODELS, Ended, Floats, end, end_by_budget, in_turn, intervals, log_ratios, outcomes, ranks

from pgherd.analysis import group_sequential
from pgherd.analysis.block_ratios import paired_ratio, walsh_rank
from pgherd.analysis.group_sequential import simultaneous
from pgherd.analysis.two_sample import joint
from pgherd.study.comparison import tables

STUDIES = 10_000
MOST = (12, 20, 60)
NOISE = (0.02, 0.03, 0.05, 0.10)
EFFECTS = (0.0, 0.02, 0.05, 0.10)
METRICS = 8
BESIDE, PLACES = 40, (0.0, 0.1, 0.2, 0.5)
HOSTS, OTHER_HOST = (2, 4), (0.0, 0.1, 0.2)
SHOWN = 20
GOAL, COVERED, WRONGLY_EQUIVALENT = 0.065, 0.935, 0.035
METHOD = "share of simulated studies, Clopper-Pearson; each end is a one-sided 99 % bound"


def main() -> None:
    parser = result.parser(__doc__, STUDIES, "studies for each kind of noise")
    options = parser.parse_args()
    studies = options.pairs or (200 if options.quick else STUDIES)
    outcome = Outcome("false_positives", options.quick, result.seed_of(options))
    outcome.settings = {
        "studies": studies,
        "most blocks": list(MOST),
        "arms": "baseline, variant, baseline (A/A)",
        "noise of a trial": 0.05,
    }
    before = result.cpu_seconds()
    rng = np.random.default_rng(outcome.seed)
    for part in (equal, covers, power, rules, both_baselines, equivalence, others, more, places, hosts):
        result.say(f"{part.__name__}: {(part.__doc__ or '').partition(chr(10))[0]}")
        figures, rows = part(rng, studies)
        outcome.figures += figures
        outcome.raw += [{"part": part.__name__, **row} for row in rows]
    outcome.noise = result.noise_since(before)
    result.conclude(outcome, options)


def share(name: str, hits: int, n: int, *, most: float | None = None, least: float | None = None, note: str = "") -> Figure:
    """A share in per cent with its exact interval; held to a bound that its upper end may not exceed, or its lower end must reach."""
    from scipy.stats import binomtest

    found = binomtest(hits, n).proportion_ci(0.98, "exact")
    goal, met = "", None
    if most is not None:
        goal, met = f"upper bound ≤ {most:.1%}", result.met(found, most=most)
    if least is not None:
        goal, met = f"lower bound ≥ {least:.1%}", result.met(found, least=least)
    return Figure(name, 100 * hits / n, "%", 100 * found.low, 100 * found.high, n, METHOD, goal.replace("%", " %"), met, note)


def simulated(model: str, rng: np.random.Generator, studies: int, most: int, noise: float) -> Floats:
    """Log ratios of studies in which nothing differs. Real noise comes in its own size."""
    logs = log_ratios(MODELS[model](rng, studies, ARMS * most), rng)
    return logs if model == "real" else logs * noise


def ends(logs: Floats, most: int, **rule: Any) -> Ended:
    """Where pgherd's rule stops these studies."""
    used = ranks(most)
    return end(intervals(logs, used), list(used), **rule)


def equal(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Two equal variants: the outcome is "higher" or "lower" by chance alone."""
    figures, rows = [], []
    for model in MODELS:
        worst: tuple[int, str] = (-1, "")
        for most in MOST:
            logs = simulated(model, rng, studies, most, 0.05)
            used = ranks(most)
            made = intervals(logs, used)
            check(logs, most, end(made, list(used)))
            stopped = {
                "at a verdict": end(made, list(used)),
                "at ± 2 %": end(made, list(used), precision=0.02),
                "by budget": end_by_budget(logs, most, rng.integers(6, most + 1, studies)),
            }
            anywhere = int(((made[:, 1] > 0) | (made[:, 2] < 0)).any(axis=0).sum())
            for rule, ended in stopped.items():
                false = int(np.isin(ended.outcome, (1, -1)).sum())
                worst = max(worst, (false, f"at most {most} blocks, stopped {rule}"))
                rows.append({"noise": model, "most": most, "stop": rule, "studies": studies, "false": false, **summary(ended)})
            rows.append({"noise": model, "most": most, "stop": "never; wrong at any look", "studies": studies, "false": anywhere})
            worst = max(worst, (anywhere, f"at most {most} blocks, wrong at any look"))
        note = f"the worst of {len(MOST)} lengths and 4 rules: {worst[1]}"
        figures.append(share(f"false positives, noise {model}", worst[0], studies, most=GOAL, note=note))
    return figures, rows


def places(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Servers side by side, each in a place of its own (where its memory lies) that makes it a little faster or slower."""
    figures, rows = [], []
    most, deals = BESIDE, {"before every block": 1, "every 4 blocks": 4, "never": BESIDE}
    for share_of_noise in PLACES:
        notes, shown = [], 0
        for name, blocks in deals.items():
            noise = simulated("autocorrelated", rng, studies, most, 0.05)
            own = rng.normal(0, 0.05 * share_of_noise * math.sqrt(2), (studies, math.ceil(most / blocks)))
            logs = noise + np.repeat(own, blocks, axis=1)[:, :most]
            false = int(np.isin(ends(logs, most).outcome, (1, -1)).sum())
            rows.append({"places": share_of_noise, "dealt": name, "most": most, "studies": studies, "false": false})
            notes.append(f"dealt {name}: {false / studies:.1%}")
            shown = false if blocks == 1 else shown
        name = f"false positives side by side, places scatter by {share_of_noise:g} of the noise"
        figures.append(share(name, shown, studies, most=GOAL, note=f"at most {most} blocks; {', '.join(notes)}"))
    return figures, rows


def hosts(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Blocks that take turns on the hosts of a cluster, of which each has a noise of its own."""
    figures, rows = [], []
    for count in HOSTS:
        worst: tuple[int, str] = (-1, "")
        for model in MODELS:
            for most in MOST:
                ended = ends(in_turn(model, rng, studies, most, count, 0.05), most)
                false = int(np.isin(ended.outcome, (1, -1)).sum())
                worst = max(worst, (false, f"noise {model}, at most {most} blocks"))
                rows.append({"hosts": count, "noise": model, "most": most, "studies": studies, "false": false, **summary(ended)})
        note = f"the worst of {len(MODELS)} kinds of noise and {len(MOST)} lengths: {worst[1]}"
        figures.append(share(f"false positives in turn on {count} hosts", worst[0], studies, most=GOAL, note=note))
        used, said = max(studies // 10, 50), dict.fromkeys(OTHER_HOST, 0)
        for gain in OTHER_HOST:
            for row in in_turn("all together", rng, used, SHOWN, count, 0.05):
                said[gain] += disagree(row, count, gain)
        rows.append({"hosts": count, "most": SHOWN, "studies": used, "said to disagree": {str(gain): n for gain, n in said.items()}})
        notes = [f"{n / used:.1%} where one differs by {gain:.0%}" for gain, n in said.items() if gain]
        note = f"{SHOWN} blocks, noise 5 % all together; {', '.join(notes)}"
        figures.append(share(f"said that {count} hosts disagree, which do not", said[0.0], used, most=GOAL, note=note))
    return figures, rows


def disagree(logs: Floats, count: int, gain: float) -> bool:
    """Whether a study says that its hosts disagree on the variant, which gains this much more on the first of them."""
    bounds = {}
    for host in range(count):
        values = np.exp(logs[host::count]) * (1 + gain * (host == 0))
        estimate = paired_ratio(list(values), [1.0] * len(values), joint(count))
        if estimate.low is not None and estimate.high is not None:
            bounds[str(host)] = (estimate.low, estimate.high)
    return tables.disjoint_intervals(bounds) is not None


def check(logs: Floats, most: int, ended: Ended, first: int = 20) -> None:
    """The simulation says of the first studies what `group_sequential.decide`, asked after every block, says."""
    words = {"higher": 1, "lower": -1, "equivalent": 2, "inconclusive": 0}
    for study, row in enumerate(logs[:first]):
        values = np.exp(row)
        for blocks in range(1, most + 1):
            decision = group_sequential.decide(list(values[:blocks]), [1.0] * blocks, max_blocks=most)
            if decision.stop:
                break
        if (words[decision.outcome], blocks) != (ended.outcome[study], ended.blocks[study]):
            raise AssertionError(
                f"study {study}: {decision} after {blocks} blocks, simulated {ended.outcome[study]} after {ended.blocks[study]}"
            )


def summary(ended: Ended) -> dict[str, float]:
    """The outcomes and the mean number of blocks."""
    return {
        "higher": ended.share(1),
        "lower": ended.share(-1),
        "equivalent": ended.share(2),
        "inconclusive": ended.share(0),
        "mean blocks": float(ended.blocks.mean()),
    }


def covers(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """The interval at the stop holds the true ratio."""
    worst: dict[float, tuple[int, str]] = {}
    rows = []
    for model in MODELS:
        for most in MOST:
            logs, used = simulated(model, rng, studies, most, 0.05), ranks(most)
            made = intervals(logs, used)
            for effect in EFFECTS:
                truth = math.log1p(effect)
                ended = end(made, list(used), truth)
                hits = int(((ended.low <= truth) & (truth <= ended.high)).sum())
                worst[effect] = min(worst.get(effect, (studies + 1, "")), (hits, f"noise {model}, at most {most} blocks"))
                rows.append({"noise": model, "most": most, "effect": effect, "studies": studies, "covered": hits, **summary(ended)})
    figures = []
    for effect, (hits, where) in worst.items():
        note = f"the worst of {len(MODELS)} kinds of noise and {len(MOST)} lengths: {where}"
        figures.append(share(f"interval holds the truth, difference {effect * 100:g} %", hits, studies, least=COVERED, note=note))
    return figures, rows


def power(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """A difference of 5 % is found."""
    figures, rows = [], []
    cases: list[tuple[str, float | None]] = [(model, noise) for model in ("all together", "independent") for noise in NOISE]
    for model, noise in [*cases, ("real", None)]:
        these = []
        for most in MOST:
            ended = ends(simulated(model, rng, studies, most, noise or 1), most, effect=math.log(1.05))
            found = ended.outcome == 1
            estimate = float(np.expm1(np.median(ended.estimate[found]))) if found.any() else None
            row = {"noise": model, "noise of a trial": noise, "most": most, "studies": studies, "found": int(found.sum())}
            these.append({**row, "median estimate of those found": estimate, **summary(ended)})
        rows += these
        if model != "independent":
            name = f"5 % found within {SHOWN} blocks, " + ("real noise" if noise is None else f"noise {noise * 100:g} % {model}")
            notes = [f"{row['most']} blocks: {row['found'] / studies:.1%}, {row['mean blocks']:.1f} used on average" for row in these]
            figures.append(share(name, next(row["found"] for row in these if row["most"] == SHOWN), studies, note="; ".join(notes)))
    return figures, rows


def rules(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Other rules for the same data, and what each would cost."""
    figures, rows = [], []
    for most in MOST:
        logs, schedule = simulated("all together", rng, studies, most, 0.05), ranks(most)
        bonferroni = {blocks: walsh_rank(group_sequential.ALPHA / 2 / len(schedule), blocks) for blocks in schedule}
        candidates: dict[str, dict[int, int] | None] = {
            "this one": schedule,
            "one look at the end": {most: walsh_rank(0.025, most)},
            "95 % after every block": {blocks: walsh_rank(0.025, blocks) for blocks in range(6, most + 1)},
            "Bonferroni over the looks": {blocks: rank for blocks, rank in bonferroni.items() if rank},
            "confidence sequence": None,
        }
        for name, used in candidates.items():
            tries = [
                confidence_sequence(logs + effect) if used is None else different(logs, used, effect) for effect in (0, math.log(1.05))
            ]
            (false, _), (found, mean) = ((int(which.sum()), float(blocks.mean())) for which, blocks in tries)
            rows.append({"rule": name, "most": most, "studies": studies, "false": false, "found": found, "mean blocks": mean})
            if most == SHOWN:
                note = f"false positives {false / studies:.1%}; blocks used {mean:.1f} on average; noise 5 % all together"
                figures.append(share(f"5 % found within {SHOWN} blocks, rule: {name}", found, studies, note=note))
    return figures, rows


def both_baselines(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """The variant against the mean of its block's two baselines: more power, but no symmetry where noise is skewed."""
    figures, rows = [], []
    worst: tuple[int, str] = (-1, "")
    for model, make in MODELS.items():
        for most in MOST:
            noise = make(rng, studies, ARMS * most) * (1 if model == "real" else 0.05)
            row: dict[str, Any] = {"noise": model, "most": most, "studies": studies}
            for name, both in (("one", False), ("both", True)):
                logs = log_ratios(noise, rng, both)
                false, found = (int(different(logs, ranks(most), effect)[0].sum()) for effect in (0, math.log(1.05)))
                row |= {f"false, {name}": false, f"found, {name}": found}
            worst = max(worst, (row["false, both"], f"noise {model}, at most {most} blocks"))
            rows.append(row)
    note = f"not done, for this reason; the worst of {len(MODELS)} kinds of noise and {len(MOST)} lengths: {worst[1]}"
    figures.append(share("false positives against the mean of two baselines", worst[0], studies, note=note))
    return figures, rows


def different(logs: Floats, used: dict[int, int], effect: float) -> tuple[Any, Any]:
    """Which studies find a difference, and the blocks they use, if nothing else stops them."""
    ended = end(intervals(logs, used), list(used), effect, equivalence=1e-9)
    return np.isin(ended.outcome, (1, -1)), ended.blocks


def confidence_sequence(logs: Floats, alpha: float = 0.05) -> tuple[Any, Any]:
    """An always-valid test of the same symmetry, which may look after every block for ever: the mixture over λ of the
    martingales ∏ exp(λdᵢ) / cosh(λdᵢ) exceeds 1/α (Ville). λ in units that favour it: of the true scatter."""
    at = np.concatenate([-np.geomspace(0.1, 2.0, 12), np.geomspace(0.1, 2.0, 12)]) / np.median(np.abs(logs - np.median(logs)))
    total = np.zeros((len(logs), len(at)))
    crossed = np.full(len(logs), 0)
    for block in range(logs.shape[1]):
        x = logs[:, block, None] * at
        total += x - (np.logaddexp(x, -x) - math.log(2))
        evidence = np.logaddexp.reduce(total, axis=1) - math.log(len(at))
        crossed = np.where((crossed == 0) & (evidence >= -math.log(alpha)), block + 1, crossed)
    return crossed > 0, np.where(crossed > 0, crossed, logs.shape[1])


def equivalence(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """ "No difference larger than 2 %": said wrongly of a difference of just 2 %, and rightly of none."""
    figures, rows = [], []
    worst: tuple[int, str] = (-1, "")
    for model in MODELS:
        for most in MOST:
            ended = ends(simulated(model, rng, studies, most, 0.02), most, effect=math.log(1.02))
            hits = int((ended.outcome == 2).sum())
            worst = max(worst, (hits, f"noise {model}, at most {most} blocks"))
            rows.append({"noise": model, "most": most, "true": 0.02, "studies": studies, **summary(ended)})
    note = f"noise of a trial 2 %; the worst of {len(MODELS)} kinds of noise and {len(MOST)} lengths: {worst[1]}"
    figures.append(share("equivalent within 2 % said of a difference of 2 %", worst[0], studies, most=WRONGLY_EQUIVALENT, note=note))
    for noise in (0.02, 0.05):
        notes = []
        for most in MOST:
            ended = ends(simulated("all together", rng, studies, most, noise), most)
            rows.append(
                {"noise": "all together", "noise of a trial": noise, "most": most, "true": 0.0, "studies": studies, **summary(ended)}
            )
            notes.append(f"{most} blocks: {ended.share(2):.1%}, {ended.blocks.mean():.1f} used on average")
        hits = int((ended.outcome == 2).sum())
        name = f"equivalent within 2 % said of equals within {most} blocks, noise {noise * 100:g} %"
        figures.append(share(name, hits, studies, note="; ".join(notes)))
    return figures, rows


def others(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Eight other metrics of two equal variants, correlated with the one that stops: any of them looks different."""
    figures, rows = [], []
    used = max(studies // 5, 50)
    for most in (12, 20):
        false = naive = 0
        primary, *metrics = (log_ratios(MODELS["all together"](rng, used, ARMS * most), rng) * 0.05 for _ in range(METRICS + 1))
        rest = [0.8 * primary + 0.6 * metric for metric in metrics]
        stopped = ends(primary, most).blocks
        for study, blocks in enumerate(stopped):
            baseline = [1.0] * int(blocks)
            pairs = {"primary": (list(np.exp(primary[study, :blocks])), baseline)}
            pairs |= {f"other {i}": (list(np.exp(metric[study, :blocks])), baseline) for i, metric in enumerate(rest)}
            found = simultaneous(pairs, "primary", max_blocks=most)
            false += any(e.low is not None and e.high is not None and not e.low <= 1 <= e.high for e in found.values())
            plain = np.array([metric[study, :blocks] for metric in rest])
            made = intervals(plain, {int(blocks): walsh_rank(0.025, int(blocks))})[0]
            naive += bool(np.isin(outcomes(made[1], made[2], 1e-9), (1, -1)).any())
        note = f"with uncorrected 95 % intervals {naive / used:.1%}; correlation with the primary metric 0.8"
        name = f"any of {METRICS} other metrics falsely different, at most {most} blocks"
        figures.append(share(name, false, used, most=GOAL, note=note))
        rows.append({"most": most, "studies": used, "metrics": METRICS, "false": false, "uncorrected": naive})
    return figures, rows


def more(rng: np.random.Generator, studies: int) -> tuple[list[Figure], list[dict[str, Any]]]:
    """ "About n more blocks would settle it": the study goes on for so many, and is settled."""
    figures, rows = [], []
    used, most = max(studies // 10, 50), 12
    for effect in (0.0, 0.02, 0.05):
        asked = settled = hopeless = 0
        wanted: list[int] = []
        logs = log_ratios(MODELS["all together"](rng, used, ARMS * group_sequential.MAX_SUGGESTED_BLOCKS), rng) * 0.05 + math.log1p(effect)
        for row in logs:
            decision = group_sequential.decide(list(np.exp(row[:most])), [1.0] * most, max_blocks=most)
            if decision.outcome != "inconclusive":
                continue
            asked += 1
            if decision.blocks_needed is None:
                hopeless += 1
                continue
            wanted.append(decision.blocks_needed)
            blocks = most + decision.blocks_needed
            made = intervals(row[None, :blocks], {blocks: walsh_rank(0.0175, blocks)})[0]
            settled += int(outcomes(made[1], made[2], group_sequential.EQUIVALENCE_MARGIN)[0] != 0)
        rows.append(
            {"effect": effect, "studies": used, "inconclusive": asked, "settled": settled, "no number": hopeless, "numbers": wanted}
        )
        if wanted:
            middle = float(np.median(wanted))
            note = f"of {used} studies of 12 blocks, {asked} could not tell; median of the numbers {middle:.0f}; no number: {hopeless}"
            figures.append(
                share(f"settled after as many more blocks as said, difference {effect * 100:g} %", settled, len(wanted), note=note)
            )
    return figures, rows


if __name__ == "__main__":
    result.run(main)
