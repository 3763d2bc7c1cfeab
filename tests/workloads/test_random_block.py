from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.workloads.random_block import RANDOM_BLOCK, load_arguments, mix, size_estimate, text


@given(st.integers(0, 100))
def test_the_share_of_updates_is_the_one_asked_for(updates: int) -> None:
    weights = {script.name: script.weight for script in mix(updates)[0]}
    assert weights.get("update", 0) == updates
    assert sum(weights.values()) == 100


def test_uniform_or_zipfian() -> None:
    uniform, zipf = text("read-uniform"), text("update-zipf")
    assert uniform is not None and "random(1, :scale * 128)" in uniform
    assert zipf is not None and "random_zipfian(1, :scale * 128, :zipf)" in zipf and "permute" in zipf
    assert mix(zipf=1.2)[1] == {"zipf": "1.2"}
    assert [text(name) for name in ("read", "write-uniform", "read-normal")] == [None, None, None]


def test_the_scale_is_the_tables_size_in_mib() -> None:
    # pg_database_size of 32 MiB after VACUUM (FREEZE, ANALYZE): PostgreSQL 15.18.
    assert size_estimate(32) == pytest.approx(41_337_347, rel=0.01)
    filling = RANDOM_BLOCK.filling(LocalNode(), Database(workload="random-block", scale=32))
    assert re.fullmatch(r"random-block-32-[0-9a-f]{12}", filling.identity)
    assert "--set=scale=32" in load_arguments(32)
    parted = RANDOM_BLOCK.filling(LocalNode(), Database(workload="random-block", scale=32, partitions=4))
    assert re.fullmatch(r"random-block-32-p4-[0-9a-f]{12}", parted.identity) and "--set=partitions=4" in load_arguments(32, 4)
    assert not any("partitions" in word for word in load_arguments(32))
    assert RANDOM_BLOCK.violations(lambda statement: []) == ()
