from __future__ import annotations

import io
import json

import numpy as np
import pytest

from pgherd.analysis.database_moves import PlacedFleet
from pgherd.analysis.demand import fold
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, Rule, as_document, make_plan
from pgherd.model.errors import PgherdError
from pgherd.report import stored_plan
from pgherd.report.plan_page import write_plan
from pgherd.report.stored_plan import input_files, read_plan


def fleet():
    demand = fold(["a", "b"], ["cpu_cores"], np.array([[[1, 2, 3, 4]], [[2, 2, 1, 1]]], np.float32), [0, 1, 0, 1], 2)
    limit = {"objective": "p95 ≤ 5 ms", "low": 4.0, "value": None}
    classes = [HostClass.model_validate({"name": "h", "capacity": {"cpu_cores": 8}, "labels": {"zone": "a"}, "latency": limit})]
    rules, options = [Rule("a", 2, ("x",), {"zone": "a"})], PlanOptions(headroom=0.1, growth=0.02)
    plan = make_plan(demand, classes, rules, options)
    return plan, PlacedFleet.of(plan, demand, classes, rules, options)


@pytest.fixture
def directory(tmp_path):
    plan, placed = fleet()
    write_plan(tmp_path / "plan", plan, placed, as_document(plan, placed.demand))
    return tmp_path / "plan"


def test_what_was_written_is_read(directory):
    plan, written = fleet()
    found = read_plan(directory)
    assert (found.answer, found.warnings) == (plan.answer, tuple(plan.warnings))
    assert (found.fleet.classes, found.fleet.rules, found.fleet.options) == (written.classes, written.rules, written.options)
    assert (found.fleet.hosts, found.fleet.placement) == (written.hosts, written.placement)
    assert (found.fleet.demand.slots, found.fleet.demand.days) == (written.demand.slots, 2)
    assert np.array_equal(found.fleet.demand.high, written.demand.high) and np.array_equal(found.fleet.demand.low, written.demand.low)
    assert not np.array_equal(written.demand.high, written.demand.low)


def test_a_plan_that_is_too_large_has_no_input(directory, monkeypatch):
    monkeypatch.setattr(stored_plan, "MAX_CELLS", 1)
    assert input_files(fleet()[1]) == {}
    with pytest.raises(PgherdError, match="more than|more hosts"):
        read_plan(directory)


def changed(name, **fields):
    def change(directory):
        document = json.loads((directory / name).read_text())
        for path, value in fields.items():
            *parents, last = path.split("__")
            place = document
            for parent in parents:
                place = place[parent]
            place[last] = value
        (directory / name).write_text(json.dumps(document))

    return change


def array(values, **more):
    buffer = io.BytesIO()
    np.save(buffer, values, **more)
    return lambda directory: (directory / "demand.npy").write_bytes(buffer.getvalue())


def text(name, contents):
    return lambda directory: (directory / name).write_text(contents)


def linked(directory):
    (directory / "plan.json").rename(directory / "elsewhere")
    (directory / "plan.json").symlink_to(directory / "elsewhere")


def cut(directory):
    (directory / "demand.npy").write_bytes((directory / "demand.npy").read_bytes()[:-4])


def endless(directory):
    """A header that claims more than any memory."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (2, 2, 1, 10**15)}
    with (directory / "demand.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)


GOOD = np.ones((2, 2, 1, 2), np.float32)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda directory: (directory / "input.json").unlink(), "No such file"),
        (linked, "is a link"),
        (text("input.json", "["), "cannot be read"),
        (text("input.json", "[" * 200_000), "cannot be read"),
        (text("plan.json", "[]"), "cannot be read"),
        (changed("input.json", schema="pgherd/place-input/9"), "the schema of input.json is not"),
        (changed("input.json", options__headroom=1), "headroom"),
        (changed("input.json", slots=0), "slots"),
        (changed("input.json", databases=["a", "a"]), "there twice"),
        (changed("input.json", resources=["gold"]), "unknown resources"),
        (changed("plan.json", hosts=[{"host": 1}]), "class"),
        (changed("plan.json", placement=[]), "cannot be read"),
        (changed("plan.json", warnings=None), "cannot be read"),
        (array(GOOD[:, :1]), "no array of the shape"),
        (array(GOOD.astype(np.float64)), "no array of the shape"),
        (array(GOOD * np.nan), "values outside of"),
        (array(-GOOD), "values outside of"),
        (array(np.array([{}]), allow_pickle=True), "cannot be read"),
        (cut, "cannot be read"),
        (endless, "cannot be read"),
        (text("demand.npy", "x"), "cannot be read"),
    ],
)
def test_a_damaged_plan_is_an_error_in_a_sentence(directory, damage, message):
    damage(directory)
    with pytest.raises(PgherdError, match=message):
        read_plan(directory)
