"""All samplers and their metrics: every module of this package that has a ``SAMPLER``. A new sampler is one file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pgherd.metrics
from pgherd.metrics.sampler import Metric, Sampler, View
from pgherd.node.protocol import Source


@cache
def samplers() -> dict[str, Sampler]:
    """Name → sampler, sorted by name. The mapping is shared: do not change it."""
    found: dict[str, Sampler] = {}
    for module in pkgutil.iter_modules(pgherd.metrics.__path__, "pgherd.metrics."):
        instance: Sampler | None = getattr(importlib.import_module(module.name), "SAMPLER", None)
        if instance is not None:
            found[instance.name] = instance
    return dict(sorted(found.items()))


@cache
def metrics() -> dict[str, Metric]:
    """Metric name → metric. One name means the same for every entity: unit, kind and resets agree in all samplers.

    Raises:
        ValueError: two samplers give one name different meanings (a mistake in a new sampler).
    """
    found: dict[str, Metric] = {}
    for sampler in samplers().values():
        for metric in sampler.metrics:
            known = found.setdefault(metric.name, metric)
            if (known.unit, known.kind, known.resets) != (metric.unit, metric.kind, metric.resets):
                raise ValueError(f"sampler '{sampler.name}' defines {metric.name} as {metric}, another sampler as {known}")
    return found


def metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        KeyError: no sampler has it.
    """
    return metrics()[name]


def sources(view: View) -> list[Source]:
    """What all samplers read, for everything in view."""
    return [source for sampler in samplers().values() for source in sampler.sources(view)]
