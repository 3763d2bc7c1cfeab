"""Constructors of findings: from an estimate, or without a number."""

from __future__ import annotations

from pgherd.analysis.intervals import Estimate
from pgherd.model.analysis import Finding


def as_finding(
    estimate: Estimate, unit: str, note: str = "", *, method: str = "", experiment: str | None = None, published: str | None = None
) -> Finding:
    """Return an estimate as a finding. The estimate's note follows ``note``."""
    return Finding(
        value=estimate.value,
        unit=unit,
        low=estimate.low,
        high=estimate.high,
        confidence=estimate.confidence,
        n=estimate.n,
        method=method or estimate.method,
        note="; ".join(text for text in (note, estimate.note) if text),
        experiment=experiment,
        published=published,
    )


def missing(unit: str, note: str, *, method: str = "", experiment: str | None = None, published: str | None = None) -> Finding:
    """Return a finding without a number. ``note`` is the reason."""
    return Finding(value=None, unit=unit, n=0, method=method, note=note, experiment=experiment, published=published)


def labelled_name(quantity: str, **labels: object) -> str:
    """Return a finding's name with labels: ``ratio{layout=dedicated,overcommit=0.3}``."""
    return f"{quantity}{{{','.join(f'{name}={value}' for name, value in labels.items())}}}"
