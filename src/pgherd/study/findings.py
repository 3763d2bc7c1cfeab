"""Estimates as findings, and findings that have no number."""

from __future__ import annotations

from pgherd.analysis.intervals import Estimate
from pgherd.model.finding import Finding


def as_finding(
    estimate: Estimate, unit: str, note: str = "", *, method: str = "", experiment: str | None = None, published: str | None = None
) -> Finding:
    """An estimate as a finding; its own note comes after the given one."""
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
    """A finding without a number, and why."""
    return Finding(value=None, unit=unit, n=0, method=method, note=note, experiment=experiment, published=published)
