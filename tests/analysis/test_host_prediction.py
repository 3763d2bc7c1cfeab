"""Rows of single hosts. tests/analysis/test_host_plan.py has those of all hosts of a plan."""

from __future__ import annotations

import numpy as np

from pgherd.analysis import host_prediction
from pgherd.analysis.demand import fold
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, make_problem
from pgherd.analysis.host_prediction import host_rows
from pgherd.analysis.packing import Hosts


def test_rows_of_single_hosts_are_those_of_all(monkeypatch):
    demand = fold(["a", "b", "c"], ["cpu_cores"], np.array([[[8, 1]], [[1, 7]], [[2, 2]]], np.float32), [0, 1], 2)
    classes = [HostClass.model_validate({"name": "h", "capacity": {"cpu_cores": {"value": 10, "low": 9, "high": 11}}})]
    hosts = Hosts(make_problem(demand, classes, [], PlanOptions()), [0, 0, 0])
    for database, host in enumerate((0, 1, 1)):
        hosts.put(database, host)
    rows = host_rows(demand, classes, hosts, {}, headroom=0.1, growth=0.02)
    assert [(row["databases"], row["unplaced_if_lost"]) for row in rows] == [(1, 0), (2, 0), (0, None)]
    monkeypatch.setattr(host_prediction, "MAX_LOST", 1)
    assert host_rows(demand, classes, hosts, {}, headroom=0.1, growth=0.02, only=[1, 2]) == rows[1:]
    assert host_rows(demand, classes, hosts, {}, headroom=0.1, growth=0.02)[0]["unplaced_if_lost"] is None, "host 1 has a higher use"
