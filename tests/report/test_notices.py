from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgherd.report.data_files import notices
from pgherd.workloads.orders.workload import NOTICE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, []),
        ({"workload": "pgbench"}, []),
        ({"workload": "orders"}, [NOTICE]),
        ({"workload": None, "arms": [{"workload": "orders"}, {"workload": "orders"}]}, [NOTICE]),
        ({"arms": {"a": {"options": {"workload": "orders"}}, "b": {"workload": "pgbench"}}}, [NOTICE]),
        ({"scripts": ["workload"]}, []),
    ],
)
def test_orders_anywhere_in_the_options_is_said_once(options: dict[str, Any], said: list[str]) -> None:
    assert notices(SimpleNamespace(options=options, resumed=[])) == said  # type: ignore[arg-type]
    assert notices(SimpleNamespace(options=options, resumed=["elsewhere"])) == [*said, "elsewhere"]  # type: ignore[arg-type]
