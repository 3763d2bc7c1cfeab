"""All studies in one table: what a user may ask of each, how it is completed for this host, and the study itself."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.study import Study
from pgherd.node.protocol import Node
from pgherd.runner.prepared import Prepared


@dataclass(frozen=True)
class Entry:
    """Where a study's parts are, as ``module:name``; imported only when they are needed."""

    study: str
    request: str
    prepare: str


STUDIES: Mapping[str, Entry] = {
    "density": Entry(
        study="pgherd.studies.density:STUDY",
        request="pgherd.studies.density.request:DensityRequest",
        prepare="pgherd.runner.prepare_density:prepare_density",
    ),
    "sizes": Entry(
        study="pgherd.studies.sizes:STUDY",
        request="pgherd.studies.sizes.request:SizesRequest",
        prepare="pgherd.runner.prepare_sizes:prepare_sizes",
    ),
}
"""Verb → its parts."""


def study_of(name: str) -> Study[Any]:
    """The study by its name; raises UsageError when there is none."""
    study: Study[Any] = _part(_entry(name).study)
    return study


def request_of(name: str) -> type[Model]:
    """The model of what a user may ask of it; raises UsageError when there is no such study."""
    request: type[Model] = _part(_entry(name).request)
    return request


def prepare(node: Node, name: str, asked: Model, *, dry: bool = False) -> Prepared:
    """Complete and check a request; ``dry``: load nothing that has not been loaded before.

    Raises:
        UsageError: it asks for something wrong, or for more than there is.
        CapabilityError: this host cannot do it.
    """
    prepared: Prepared = _part(_entry(name).prepare)(node, asked, dry)
    return prepared


def _entry(name: str) -> Entry:
    if name not in STUDIES:
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(STUDIES))}")
    return STUDIES[name]


def _part(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
