"""What a user may ask of each study, and how it is completed for this host. The studies themselves: pgherd.studies.registry."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node
from pgherd.runner.prepare.host_roles import Use
from pgherd.runner.prepare.joined import joined
from pgherd.runner.prepare.prepared import Prepared
from pgherd.studies.registry import study_of

__all__ = ["STUDIES", "Entry", "prepare", "request_of", "study_of", "use_of"]


@dataclass(frozen=True)
class Entry:
    """Where they are, as ``module:name``, imported only when they are needed; and how the study uses the hosts of a cluster.

    ``over``: every host completes the request for itself, and this makes the options of all of them out of each one's (host → options).
    Without it the first host completes it for all.
    """

    request: str
    prepare: str
    use: Use = "together"
    over: str | None = None


STUDIES: Mapping[str, Entry] = {
    "compare": Entry(
        request="pgherd.studies.compare.request:CompareRequest",
        prepare="pgherd.runner.prepare.compare:prepare_compare",
        use="in turn",
    ),
    "consolidation": Entry(
        request="pgherd.studies.consolidation.request:ConsolidationRequest",
        prepare="pgherd.runner.prepare.consolidation:prepare_consolidation",
        use="one",
    ),
    "compression": Entry(
        request="pgherd.studies.compression.request:CompressionRequest",
        prepare="pgherd.runner.prepare.compression:prepare_compression",
    ),
    "density": Entry(
        request="pgherd.studies.density.request:DensityRequest",
        prepare="pgherd.runner.prepare.density:prepare_density",
    ),
    "disk": Entry(
        request="pgherd.studies.disk.request:DiskRequest",
        prepare="pgherd.runner.prepare.disk:prepare_disk",
        over="pgherd.runner.prepare.disk:over_hosts",
    ),
    "exec": Entry(
        request="pgherd.studies.execution.request:ExecRequest",
        prepare="pgherd.runner.prepare.exec:prepare_exec",
        over="pgherd.runner.prepare.joined:same_options",
    ),
    "hugepages": Entry(
        request="pgherd.studies.hugepages.request:HugepagesRequest",
        prepare="pgherd.runner.prepare.hugepages:prepare_hugepages",
        use="one",
    ),
    "network": Entry(
        request="pgherd.studies.network.request:NetworkRequest",
        prepare="pgherd.runner.prepare.network:prepare_network",
        over="pgherd.runner.prepare.network:over_hosts",
    ),
    "scaling": Entry(
        request="pgherd.studies.scaling.request:ScalingRequest",
        prepare="pgherd.runner.prepare.scaling:prepare_scaling",
        use="one",
    ),
    "sizes": Entry(
        request="pgherd.studies.sizes.request:SizesRequest",
        prepare="pgherd.runner.prepare.sizes:prepare_sizes",
    ),
    "storage": Entry(
        request="pgherd.studies.storage.request:StorageRequest",
        prepare="pgherd.runner.prepare.storage:prepare_storage",
        use="one",
    ),
    "working-set": Entry(
        request="pgherd.studies.working_set.request:WorkingSetRequest",
        prepare="pgherd.runner.prepare.working_set:prepare_working_set",
        use="one",
    ),
}
"""Verb → its parts."""

_ASKED_AS = {"budget_seconds": "budget"}
"""Fields of complete options that have another name in what a user asks for."""


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
    try:
        prepared: Prepared = pkgutil.resolve_name(_entry(name).prepare)(node, asked, dry)
    except ValidationError as error:
        raise _refused(error, asked, study_of(name).options) or error from None
    return prepared


def _refused(error: ValidationError, asked: Model, options: type[Model]) -> UsageError | None:
    """What the options do not take of what was asked, such as a time of 0; None where the fault is not the user's."""
    fault = error.errors()[0]
    field = str(fault["loc"][0]) if error.title == options.__name__ and fault["loc"] else ""
    option = _ASKED_AS.get(field, field)
    given = getattr(asked, option, None)
    if given is None:
        return None
    return UsageError(f"--{option.replace('_', '-')} {given}: {fault['msg'][0].lower()}{fault['msg'][1:]}")


def use_of(name: str) -> Use:
    """How a study uses the hosts of a cluster; raises UsageError when there is no such study."""
    return _entry(name).use


def completed_by_each(name: str) -> bool:
    """Whether every host of a cluster completes a request for itself; raises UsageError when there is no such study."""
    return _entry(name).over is not None


def over(name: str, prepared: Mapping[str, Prepared]) -> Prepared:
    """A request that every host has completed for itself (host → what it prepared), for all of them.

    Raises:
        UsageError: the hosts differ in what must be equal.
    """
    where = _entry(name).over
    assert where is not None
    options: Model = pkgutil.resolve_name(where)({host: one.options for host, one in prepared.items()})
    return joined(prepared, options)


def _entry(name: str) -> Entry:
    if name not in STUDIES:
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(STUDIES))}")
    return STUDIES[name]
