from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgherd.metrics.sampler import samplers
from pgherd.node.protocol import SampleSource

CAPTURED = Path(__file__).parent.parent / "fixtures" / "metrics"


@pytest.fixture(scope="session")
def text() -> Callable[[str], str]:
    """Name → captured text."""
    return lambda name: (CAPTURED / name).read_text()


@pytest.fixture(scope="session")
def parsed(text: Callable[[str], str]) -> Callable[..., dict[str, dict[str, float]]]:
    """(sampler, name of a captured text, tag) → entity → values."""

    def parse(sampler: str, name: str, tag: str = "", entity: str = "host") -> dict[str, dict[str, float]]:
        source = SampleSource(sampler, entity, "file", "/where", tag=tag)
        return dict(samplers()[sampler].parse(text(name), source))

    return parse
