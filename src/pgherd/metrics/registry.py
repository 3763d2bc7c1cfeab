"""All samplers and their metrics. A new sampler needs no registration: its module exports ``SAMPLER`` or ``SAMPLERS``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pgherd.metrics
from pgherd.metrics.sampler import SampledMetric, Sampler, SamplingView
from pgherd.node.protocol import SampleSource


@cache
def samplers() -> dict[str, Sampler]:
    """Return name → sampler, sorted by name. The mapping is shared: do not change it."""
    by_name: dict[str, Sampler] = {}
    for info in pkgutil.iter_modules(pgherd.metrics.__path__, "pgherd.metrics."):
        module = importlib.import_module(info.name)
        instances = (module.SAMPLER,) if hasattr(module, "SAMPLER") else getattr(module, "SAMPLERS", ())
        by_name |= {instance.name: instance for instance in instances}
    return dict(sorted(by_name.items()))


@cache
def metrics() -> dict[str, SampledMetric]:
    """Return metric name → metric. Samplers that share a name agree in unit, kind and resets.

    Raises:
        ValueError: two samplers define one name differently, which is a mistake in a new sampler.
    """
    by_name: dict[str, SampledMetric] = {}
    for sampler in samplers().values():
        for metric in sampler.metrics:
            first = by_name.setdefault(metric.name, metric)
            if (first.unit, first.kind, first.resets) != (metric.unit, metric.kind, metric.resets):
                raise ValueError(f"sampler '{sampler.name}' defines {metric.name} as {metric}, another sampler as {first}")
    return by_name


def metric(name: str) -> SampledMetric:
    """Return the metric of that name. Raises KeyError if no sampler has it."""
    return metrics()[name]


def sources(view: SamplingView) -> list[SampleSource]:
    """Return the sources of all samplers for everything in view."""
    return [source for sampler in samplers().values() for source in sampler.sources(view)]
