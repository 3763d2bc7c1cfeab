"""Input of a plan as files, with which a page computes the effect of moving a database.

``input.json`` has the classes, constraints and options. ``demand.npy`` has the demand as two arrays of the shape (databases, resources,
slots): what is planned for, and the lower bound.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from pgherd.analysis.database_moves import PlacedFleet
from pgherd.analysis.demand import MAX_SLOTS, MOST, RESOURCES, Demand, slot_labels
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, Rule
from pgherd.model.base import Model
from pgherd.model.errors import PgherdError
from pgherd.model.text import clean
from pgherd.node import files

SCHEMA = "pgherd/place-input/1"
MAX_CELLS = 20_000_000
"""Most values of the demand, and of the use of the hosts, that are stored and read. Larger plans have no files of their input."""
_ARRAY_HEADER = 4096
_MAX_WARNINGS, _MAX_TEXT = 100, 1000
_Names = Annotated[tuple[str, ...], Field(min_length=1)]


class _Input(Model):
    """Contents of ``input.json``, without its schema."""

    databases: _Names
    resources: _Names
    slots: int = Field(ge=1, le=MAX_SLOTS)
    days: int = Field(ge=1)
    classes: tuple[HostClass, ...]
    rules: tuple[Rule, ...]
    options: PlanOptions


@dataclass(frozen=True, eq=False)
class StoredPlan:
    """A plan that was read: its answer and warnings, and the fleet."""

    answer: str
    warnings: tuple[str, ...]
    fleet: PlacedFleet


def input_files(fleet: PlacedFleet) -> dict[str, bytes]:
    """Return the files of the input by name. There are none of a plan that is too large."""
    demand = fleet.demand
    if demand.high.size > MAX_CELLS:
        return {}
    found = _Input(
        databases=demand.names,
        resources=demand.resources,
        slots=len(demand.slots),
        days=demand.days,
        classes=fleet.classes,
        rules=fleet.rules,
        options=fleet.options,
    )
    array = io.BytesIO()
    np.save(array, np.stack([demand.high, demand.low]))
    text = json.dumps({"schema": SCHEMA, **found.model_dump(mode="json")}, ensure_ascii=False)
    return {"input.json": text.encode(), "demand.npy": array.getvalue()}


def read_plan(directory: Path) -> StoredPlan:
    """Read a plan of unknown origin from its directory.

    Raises:
        PgherdError: a file is missing, too large or a link, or has another form than one of a plan.
    """
    try:
        given, plan = (json.loads(files.read_file(directory / name)) for name in ("input.json", "plan.json"))
        if given.pop("schema", None) != SCHEMA:
            raise ValueError(f"the schema of input.json is not {SCHEMA}")
        stored = _Input.model_validate(given)
        data = files.read_file(directory / "demand.npy", limit=8 * MAX_CELLS + _ARRAY_HEADER)
        hosts = {str(row["host"]): str(row["class"]) for row in plan["hosts"]}
        if not 0 < len(hosts) * len(stored.resources) * stored.slots <= MAX_CELLS:
            raise ValueError("the plan has no hosts, or more hosts than a page can show")
        placement = {str(database): str(host) for database, host in plan["placement"].items()}
        fleet = PlacedFleet(_demand(stored, data), stored.classes, stored.rules, stored.options, hosts, placement)
        answer, *warnings = (clean(text)[:_MAX_TEXT] for text in (plan["answer"], *plan["warnings"][:_MAX_WARNINGS]))
        return StoredPlan(answer, tuple(warnings), fleet)
    except OSError as error:
        raise PgherdError(f"the plan cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise PgherdError(f"the plan cannot be read: input.json, {'.'.join(map(str, first['loc']))}: {clean(first['msg'])}") from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, RecursionError) as error:
        raise PgherdError(f"the plan cannot be read: {clean(error)[:200]}") from None


def _demand(stored: _Input, data: bytes) -> Demand:
    """Return the demand. Raises ValueError for one that no plan has."""
    names, resources = stored.databases, stored.resources
    if not set(resources) <= set(RESOURCES) or len(set(resources)) < len(resources) or len(set(names)) < len(names):
        raise ValueError("input.json has unknown resources, or names that are there twice")
    values: Any = np.load(io.BytesIO(data), allow_pickle=False)
    shape = (2, len(names), len(resources), stored.slots)
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != shape:
        raise ValueError(f"demand.npy is no array of the shape {shape}")
    if not (values.min() >= 0 and values.max() <= MOST):  # also false for one that is no number
        raise ValueError(f"demand.npy has values outside of 0 to {MOST:g}")
    slots = slot_labels(stored.slots)
    return Demand(tuple(map(clean, names)), resources, slots, values[0], values[1], stored.days)
