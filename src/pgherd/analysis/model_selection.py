"""Choice of the scaling model that the data support, by the small-sample Akaike criterion (AICc)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.bootstrap import bootstrap_fit
from pgherd.analysis.scaling_model import HINGE, LINE, USL, Fit, ScalingModel, Weights, fit, observations
from pgherd.model.errors import UsageError

MODELS: tuple[ScalingModel, ...] = (LINE, USL, HINGE)
INDISTINCT = 2.0
"""AICc differences up to this count as equal (Burnham and Anderson 2002)."""


@dataclass(frozen=True)
class ModelSelection:
    """Fits of all models, the chosen one, and the reason.

    ``akaike`` are Akaike weights by model name: the share of evidence for each among these models. ``close`` names the models
    with an AICc within 2 of the best. ``best`` is None if there are too few data to choose.
    """

    fits: tuple[Fit, ...]
    best: Fit | None
    reason: str
    akaike: dict[str, float]
    close: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def get(self, name: str) -> Fit | None:
        """Return the fit of a model by name. None if it was not fitted."""
        return next((fit for fit in self.fits if fit.model.name == name), None)


def comparable(candidate: Fit) -> bool:
    """Whether a fit may be chosen: its AICc is defined, and it does not fit all means exactly."""
    return candidate.aicc is not None and candidate.distinct > len(candidate.model.parameters)


def select(fits: Sequence[Fit]) -> ModelSelection:
    """Choose among fits to the same observations.

    It is the fit with the smallest AICc, or the one with the fewest parameters among those within 2 of it.
    """
    criteria = {candidate.model.name: candidate.aicc for candidate in fits if comparable(candidate) and candidate.aicc is not None}
    if not criteria:
        distinct, n = (fits[0].distinct, fits[0].n) if fits else (0, 0)
        return ModelSelection(
            tuple(fits),
            None,
            f"{n} observations at {distinct} distinct load{'s' * (distinct != 1)} are too few to choose a model; a line requires 4",
            {},
        )
    lowest = min(criteria.values())
    relative = {name: math.exp(-(value - lowest) / 2) for name, value in criteria.items()}
    akaike = {name: value / sum(relative.values()) for name, value in relative.items()}
    close = [candidate for candidate in fits if candidate.model.name in criteria and criteria[candidate.model.name] - lowest <= INDISTINCT]
    best = min(close, key=lambda candidate: (len(candidate.model.parameters), criteria[candidate.model.name]))
    others = [candidate for candidate in close if candidate is not best]
    if others:
        rivals = " and ".join(candidate.model.title for candidate in others)
        simpler = any(len(candidate.model.parameters) > len(best.model.parameters) for candidate in others)
        reason = f"{best.model.title}: not distinguishable from {rivals} (AICc within {INDISTINCT:g}); "
        reason += "it has fewer parameters" if simpler else "its AICc is smaller"
    elif len(criteria) == 1:
        reason = f"{best.model.title}: the only model with enough data"
    else:
        second = sorted(criteria.values())[1]
        reason = f"{best.model.title}: its AICc is {second - lowest:.1f} below that of the next"
    return ModelSelection(tuple(fits), best, reason, akaike, tuple(candidate.model.name for candidate in others))


def fit_models(
    loads: Sequence[float],
    throughputs: Sequence[float],
    weights: Weights = "relative",
    *,
    resamples: int = 200,
    seed: int = 1,
    confidence: float = 0.95,
) -> ModelSelection:
    """Fit the linear model, the Universal Scalability Law and the piecewise linear model with bootstrap intervals, and choose one.

    A model with more parameters than distinct loads is skipped with a warning. ``resamples`` 0 gives no intervals.

    Raises:
        UsageError: no valid observations.
    """
    x, _ = observations(loads, throughputs)
    distinct = len(set(x.tolist()))
    if distinct == 0:
        raise UsageError("no observations to fit; give at least one load with its throughput")
    fits, skipped = [], []
    for model in MODELS:
        if distinct < len(model.parameters):
            counts = f"{len(model.parameters)} parameters, but {distinct} distinct load{'s' * (distinct != 1)}"
            skipped.append(f"the {model.title} model is not fitted: {counts}")
            continue
        fitted = fit(model, loads, throughputs, weights)
        fits.append(
            bootstrap_fit(fitted, loads, throughputs, resamples=resamples, seed=seed, confidence=confidence) if resamples else fitted
        )
    return replace(select(fits), warnings=tuple(skipped))
