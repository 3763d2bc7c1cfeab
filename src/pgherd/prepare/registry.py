"""Completion of a request for this host, by the module ``prepare`` of the request's study."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node
from pgherd.prepare.merge import join_hosts, same_options
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.study.registry import study_of


def prepare(node: Node, name: str, request: Model, *, dry: bool = False) -> PreparedStudy:
    """Complete and check a request. With ``dry`` no database is loaded.

    Raises:
        UsageError: an option is wrong, or the request needs more than the host has.
        CapabilityError: this host lacks a feature.
    """
    study = study_of(name)
    try:
        prepared: PreparedStudy = study.module("prepare").prepare(node, request, dry)
    except ValidationError as error:
        raise _usage_error(error, request, study.options) or error from None
    return prepared


def _usage_error(error: ValidationError, request: Model, options: type[Model]) -> UsageError | None:
    """Return the error for a value that the options reject, such as a duration of 0. None if the user did not give the value."""
    fault = error.errors()[0]
    field = str(fault["loc"][0]) if error.title == options.__name__ and fault["loc"] else ""
    value = getattr(request, field, None)
    if value is None:
        return None
    return UsageError(f"--{field.replace('_', '-')} {value}: {fault['msg'][0].lower()}{fault['msg'][1:]}")


def over_hosts(name: str, prepared: Mapping[str, PreparedStudy]) -> PreparedStudy:
    """Merge the studies that the hosts have prepared (host → prepared study) into one for all hosts.

    Raises:
        UsageError: the hosts differ in a value that must be equal.
    """
    join = study_of(name).hook("prepare", "over_hosts") or same_options
    return join_hosts(prepared, join({host: one.options for host, one in prepared.items()}))
