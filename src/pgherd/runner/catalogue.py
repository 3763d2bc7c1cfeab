"""What a user may ask of each study, and how it is completed for this host. The studies themselves: pgherd.studies.registry."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node
from pgherd.runner.prepared import Prepared
from pgherd.studies.registry import study_of

__all__ = ["STUDIES", "Entry", "prepare", "request_of", "study_of"]


@dataclass(frozen=True)
class Entry:
    """Where they are, as ``module:name``; imported only when they are needed."""

    request: str
    prepare: str


STUDIES: Mapping[str, Entry] = {
    "compare": Entry(
        request="pgherd.studies.compare.request:CompareRequest",
        prepare="pgherd.runner.prepare_compare:prepare_compare",
    ),
    "consolidation": Entry(
        request="pgherd.studies.consolidation.request:ConsolidationRequest",
        prepare="pgherd.runner.prepare_consolidation:prepare_consolidation",
    ),
    "compression": Entry(
        request="pgherd.studies.compression.request:CompressionRequest",
        prepare="pgherd.runner.prepare_compression:prepare_compression",
    ),
    "density": Entry(
        request="pgherd.studies.density.request:DensityRequest",
        prepare="pgherd.runner.prepare_density:prepare_density",
    ),
    "disk": Entry(
        request="pgherd.studies.disk.request:DiskRequest",
        prepare="pgherd.runner.prepare_disk:prepare_disk",
    ),
    "exec": Entry(
        request="pgherd.studies.execution.request:ExecRequest",
        prepare="pgherd.runner.prepare_exec:prepare_exec",
    ),
    "hugepages": Entry(
        request="pgherd.studies.hugepages.request:HugepagesRequest",
        prepare="pgherd.runner.prepare_hugepages:prepare_hugepages",
    ),
    "network": Entry(
        request="pgherd.studies.network.request:NetworkRequest",
        prepare="pgherd.runner.prepare_network:prepare_network",
    ),
    "scaling": Entry(
        request="pgherd.studies.scaling.request:ScalingRequest",
        prepare="pgherd.runner.prepare_scaling:prepare_scaling",
    ),
    "sizes": Entry(
        request="pgherd.studies.sizes.request:SizesRequest",
        prepare="pgherd.runner.prepare_sizes:prepare_sizes",
    ),
    "storage": Entry(
        request="pgherd.studies.storage.request:StorageRequest",
        prepare="pgherd.runner.prepare_storage:prepare_storage",
    ),
    "working-set": Entry(
        request="pgherd.studies.working_set.request:WorkingSetRequest",
        prepare="pgherd.runner.prepare_working_set:prepare_working_set",
    ),
}
"""Verb → its parts."""


def request_of(name: str) -> type[Model]:
    """The model of what a user may ask of it; raises UsageError when there is no such study."""
    request: type[Model] = pkgutil.resolve_name(_entry(name).request)
    return request


def prepare(node: Node, name: str, asked: Model, *, dry: bool = False) -> Prepared:
    """Complete and check a request; ``dry``: load nothing that has not been loaded before.

    Raises:
        UsageError: it asks for something wrong, or for more than there is.
        CapabilityError: this host cannot do it.
    """
    prepared: Prepared = pkgutil.resolve_name(_entry(name).prepare)(node, asked, dry)
    return prepared


def _entry(name: str) -> Entry:
    if name not in STUDIES:
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(STUDIES))}")
    return STUDIES[name]
