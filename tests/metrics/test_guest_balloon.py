import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.guest_balloon import BALLOON_MANAGER, GUEST_BALLOON
from pgherd.metrics.sampler import GuestView, SamplingView
from pgherd.node.protocol import SampleSource

# ---- guests


SOURCE = SampleSource("guest_balloon", "guest:a", "file", "a")
WRITTEN = {"memory": 1000, "minimum": 200, "actual": 700, "target": 650, "working_set": 300, "at": 12.5, "last_update": 11}
STATS = {"stat-free-memory": 5, "stat-available-memory": 6, "stat-swap-in": 7, "stat-disk-caches": -1, "stat-htlb-pgalloc": 0}


def test_reads_what_was_seen_and_set() -> None:
    ((entity, values),) = GUEST_BALLOON.parse(json.dumps(WRITTEN | {"stats": STATS}), SOURCE)
    assert entity == "guest:a"
    assert values == {
        "guest.memory_configured": 1000,
        "guest.minimum": 200,
        "guest.memory_balloon_actual": 700,
        "guest.target": 650,
        "guest.working_set": 300,
        "guest.ballooned": 300,
        "guest.free": 5,
        "guest.available": 6,
        "guest.swap_in": 7,
        "guest.statistics_age": 1.5,
    }


def test_before_the_guest_has_told_anything() -> None:
    ((_, values),) = GUEST_BALLOON.parse(json.dumps(WRITTEN | {"stats": {}, "last_update": 0}), SOURCE)
    assert "guest.statistics_age" not in values and "guest.free" not in values and values["guest.ballooned"] == 300


def test_no_node_reads_it() -> None:
    assert GUEST_BALLOON.sources(SamplingView()) == []


@pytest.mark.parametrize("raw", ["", "[]", "{}", "7", json.dumps(WRITTEN), json.dumps(WRITTEN | {"stats": 3}), '{"stats": {}}'])
def test_refuses_other_text(raw) -> None:
    with pytest.raises(ValueError):
        list(GUEST_BALLOON.parse(raw, SOURCE))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_json_is_a_reading_or_a_value_error(document) -> None:
    with contextlib.suppress(ValueError):
        list(GUEST_BALLOON.parse(json.dumps(document), SOURCE))


# ---- balloon manager


MANAGER = SampleSource("balloon_manager", "platform:balloon-manager", "qmp", "")


def test_the_managers_own_cpu_is_a_part_of_the_platform() -> None:
    assert list(BALLOON_MANAGER.parse('{"cpu": 1.25}', MANAGER)) == [("platform:balloon-manager", {"cpu.usage": 1.25})]
    assert BALLOON_MANAGER.sources(SamplingView(guests=[GuestView("a", 7, 2**20)])) == []


@pytest.mark.parametrize("raw", ["", "{}", "[]", '{"cpu": null}', '{"cpu": "much"}'])
def test_refuses_other_text_of_balloon_manager(raw: str) -> None:
    with pytest.raises(ValueError):
        list(BALLOON_MANAGER.parse(raw, MANAGER))
