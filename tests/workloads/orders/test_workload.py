from __future__ import annotations

import re

import pytest

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.workloads.orders.workload import NOTICE, ORDERS, digest, size_estimate


def test_the_scale_is_the_number_of_warehouses() -> None:
    filling = ORDERS.filling(LocalNode(), Database(workload="orders", scale=3))
    assert re.fullmatch(r"orders-3-[0-9a-f]{12}", filling.identity)
    assert filling.identity.endswith(digest())
    assert filling.size_estimate == size_estimate(3) == ORDERS.size_estimate(3)


def test_size_estimate_against_a_measured_size() -> None:
    # pg_database_size of 2 warehouses after loading and VACUUM (FREEZE, ANALYZE): PostgreSQL 15.18.
    assert size_estimate(2) == pytest.approx(247_456_259, rel=0.01)


def test_violations_are_sentences() -> None:
    rows = [(number, int(number == 3), "district 1.1") for number in range(1, 13)]
    found = ORDERS.violations(lambda statement: rows if statement.startswith("WITH") else [])
    assert len(found) == 1 and found[0].startswith("condition 3")


def test_reports_say_what_it_is_not() -> None:
    assert "derived" in NOTICE and "not comparable with published TPC results" in NOTICE
    assert (ORDERS.name, ORDERS.read_only) == ("orders", False)
