from __future__ import annotations

import json

import numpy as np
import pytest

from pgherd.model.errors import UsageError
from pgherd.report import drawing
from pgherd.report.plan_page import heat_map, write_plan


def cells(figure):
    specification = drawing.specification(figure, validate=True)
    return json.loads(specification["datasets"][specification["data"]["name"]])


def test_each_host_and_slot_is_a_cell():
    figure = heat_map(np.array([[0.5, 1.2], [0.1, 0.2]], np.float32), ["a", "b"], ["00:00", "12:00"], "as planned")
    assert [(cell["host"], cell["x"], cell["use"]) for cell in cells(figure)] == [("a", 0, 50), ("a", 12, 120), ("b", 0, 10), ("b", 12, 20)]
    assert figure.title == "2 hosts as planned: 1 of 2 hosts exceed their capacity"


def test_many_hosts_are_joined_and_show_the_highest_use():
    use = np.zeros((500, 288), np.float32)
    use[321, 200] = 0.9
    found = cells(heat_map(use, [f"h{n}" for n in range(500)], ["00:00"] * 288, "as planned"))
    assert len(found) == 48 * 96 and sorted(cell["use"] for cell in found)[-2:] == [0, 90]


def test_columns_of_unequal_numbers_of_slots_leave_no_gap():
    found = cells(heat_map(np.zeros((1, 100), np.float32), ["a"], ["00:00"] * 100, "as planned"))
    assert len(found) == 96 and [cell["x2"] for cell in found] == [*[cell["x"] for cell in found[1:]], 24]


def test_page_is_not_written_where_it_cannot_be(tmp_path):
    from pgherd.analysis.database_moves import PlacedFleet
    from pgherd.analysis.demand import fold
    from pgherd.analysis.host_class import HostClass
    from pgherd.analysis.host_plan import PlanOptions, make_plan

    demand = fold(["<b>"], ["cpu_cores"], np.ones((1, 1, 1), np.float32), [0], 1)
    classes = [HostClass.model_validate({"name": "a", "capacity": {"cpu_cores": 2}})]
    plan = make_plan(demand, classes, [], PlanOptions())
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another directory"):
        write_plan(tmp_path / "file" / "plan", plan, PlacedFleet.of(plan, demand, classes, [], PlanOptions()), {})
