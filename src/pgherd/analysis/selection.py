"""Which scaling model do the data support? All are fitted, the small-sample Akaike criterion chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.bootstrap import bootstrap_fit
from pgherd.analysis.fit import HINGE, LINE, USL, Fit, ScalingModel, Weights, fit, observations
from pgherd.model.errors import UsageError

MODELS: tuple[ScalingModel, ...] = (LINE, USL, HINGE)
INDISTINCT = 2.0
"""Differences in AICc up to this are taken as no difference (Burnham and Anderson 2002)."""


@dataclass(frozen=True)
class Selection:
    """Fits of all models, the chosen one, and its reason. ``weights`` are Akaike weights by model name: the share of
    evidence for each among these models. ``close`` names the models that the data hardly tell from the best (AICc within
    2). ``best`` None: the data are too few to choose."""

    fits: tuple[Fit, ...]
    best: Fit | None
    reason: str
    akaike: dict[str, float]
    close: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def get(self, name: str) -> Fit | None:
        """The fit of a model, by name; None where it could not be fitted."""
        return next((each for each in self.fits if each.model.name == name), None)


def comparable(candidate: Fit) -> bool:
    """Whether a fit may be chosen: AICc is defined, and it does not simply pass through every mean."""
    return candidate.aicc is not None and candidate.distinct > len(candidate.model.parameters)


def select(fits: Sequence[Fit]) -> Selection:
    """Choose among fits to the same observations: the smallest AICc, or the fit with fewest parameters among those within
    2 of it."""
    judged = {each.model.name: each.aicc for each in fits if comparable(each) and each.aicc is not None}
    if not judged:
        distinct, n = (fits[0].distinct, fits[0].n) if fits else (0, 0)
        return Selection(
            tuple(fits),
            None,
            f"{n} observations at {distinct} distinct load{'s' * (distinct != 1)} are too few to choose a model: even a line takes 4, at 2",
            {},
        )
    least = min(judged.values())
    relative = {name: math.exp(-(value - least) / 2) for name, value in judged.items()}
    akaike = {name: value / sum(relative.values()) for name, value in relative.items()}
    close = [each for each in fits if each.model.name in judged and judged[each.model.name] - least <= INDISTINCT]
    best = min(close, key=lambda each: (len(each.model.parameters), judged[each.model.name]))
    others = [each for each in close if each is not best]
    if others:
        rivals = " and the ".join(each.model.title for each in others)
        simpler = any(len(each.model.parameters) > len(best.model.parameters) for each in others)
        reason = f"{best.model.title}: the data hardly tell it from the {rivals} (AICc within {INDISTINCT:g}); "
        reason += "it has fewer parameters" if simpler else "its AICc is smaller"
    elif len(judged) == 1:
        reason = f"{best.model.title}: the only model that the data are enough for"
    else:
        second = sorted(judged.values())[1]
        reason = f"{best.model.title}: its AICc is {second - least:.1f} below that of the next"
    return Selection(tuple(fits), best, reason, akaike, tuple(each.model.name for each in others))


def fit_models(
    loads: Sequence[float],
    throughputs: Sequence[float],
    weights: Weights = "relative",
    *,
    resamples: int = 200,
    seed: int = 1,
    confidence: float = 0.95,
) -> Selection:
    """Fit the line, the Universal Scalability Law and the hinge, with bootstrapped intervals, and choose.

    A model with more parameters than there are distinct loads is left out, and said. ``resamples`` 0 gives no intervals.

    Raises:
        UsageError: no usable observations.
    """
    x, _ = observations(loads, throughputs)
    distinct = len(set(x.tolist()))
    if distinct == 0:
        raise UsageError("no observations to fit; give at least one load with its throughput")
    fits, missing = [], []
    for model in MODELS:
        if distinct < len(model.parameters):
            missing.append(
                f"the {model.title} is not fitted: {len(model.parameters)} parameters, but {distinct} distinct load{'s' * (distinct != 1)}"
            )
            continue
        plain = fit(model, loads, throughputs, weights)
        fits.append(bootstrap_fit(plain, loads, throughputs, resamples=resamples, seed=seed, confidence=confidence) if resamples else plain)
    return replace(select(fits), warnings=tuple(missing))
