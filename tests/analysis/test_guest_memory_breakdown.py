import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.guest_memory_breakdown import (
    GuestMemoryReading,
    MemoryBreakdown,
    breakdown,
    compressed_share,
    compressed_size,
    from_means,
    hypervisor_memory,
    last_value,
    mean_breakdown,
    over_time,
    value_at,
)

MB = 2.0**20
sizes = st.floats(0, 1e13)
readings = st.builds(
    GuestMemoryReading,
    configured=sizes,
    actual=sizes,
    hypervisor=sizes,
    overhead=sizes,
    swapped=sizes,
    compressed_share=st.floats(0, 1),
    free=st.none() | sizes,
    pg_balloon=sizes,
)


@given(readings)
def test_the_parts_and_the_residue_are_the_configured_memory(seen) -> None:
    result = breakdown(seen)
    assert result.accounted + result.unaccounted == pytest.approx(seen.configured, rel=1e-9, abs=1e-2)
    parts = (result.resident, result.by_kernel, result.by_pg_balloon, result.compressed, result.swapped, result.never_touched)
    assert all(part >= 0 for part in parts)


@given(readings)
def test_the_databases_balloon_is_a_part_of_the_kernels_and_adds_nothing(seen) -> None:
    result = breakdown(seen)
    without = breakdown(GuestMemoryReading(**{**vars(seen), "pg_balloon": 0.0}))
    assert result.ballooned == pytest.approx(without.ballooned)
    assert result.by_pg_balloon <= min(seen.pg_balloon, result.ballooned) + 1e-6
    assert result.unaccounted == pytest.approx(without.unaccounted) and result.never_touched == without.never_touched


@given(readings)
def test_untouched_is_never_more_than_the_guest_calls_free(seen) -> None:
    if seen.free is not None:
        assert breakdown(seen).never_touched <= seen.free


@given(st.lists(readings, min_size=1, max_size=6))
def test_means_add_up_too(seen) -> None:
    result = mean_breakdown(breakdown(item) for item in seen)
    assert result is not None
    assert result.accounted + result.unaccounted == pytest.approx(result.configured, rel=1e-6, abs=1.0)
    assert mean_breakdown([]) is None


def test_a_guest_of_which_all_is_known() -> None:
    """1000 MB configured; 300 in its balloon, 250 of them from the database; 400 in memory, in addition
    to the hypervisor's 60; 120 swapped, three quarters of it compressed; 180 never touched."""
    reading = GuestMemoryReading(
        configured=1000, actual=700, hypervisor=460, overhead=60, swapped=120, compressed_share=0.75, free=200, pg_balloon=250
    )
    assert breakdown(reading) == MemoryBreakdown(1000, 400, 50, 250, 90, 30, 180, 0)
    assert breakdown(reading).ballooned == 300 and breakdown(reading).gap == 0


def test_what_the_host_still_holds_of_a_balloon_is_a_negative_residue() -> None:
    result = breakdown(GuestMemoryReading(configured=1000, actual=600, hypervisor=1000, free=0))
    assert (result.resident, result.ballooned, result.unaccounted, result.gap) == (1000, 400, -400, -0.4)


def test_what_nothing_explains_is_a_positive_residue() -> None:
    assert breakdown(GuestMemoryReading(configured=1000, actual=1000, hypervisor=600, free=100)).unaccounted == 300
    assert breakdown(GuestMemoryReading(configured=1000, actual=1000, hypervisor=600)).unaccounted == 0, (
        "the guest does not report its free memory"
    )


def test_readings_at_other_instants() -> None:
    series = [(0.0, 10.0), (2.0, 20.0), (10.0, 0.0)]
    assert [value_at(series, t) for t in (-1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 9.0, 13.0)] == [10, 10, 15, 20, 20, None, 0, None]
    assert value_at([], 1) is None
    assert [last_value(series, t) for t in (-5.0, 0.0, 9.0, 99.0)] == [10, 10, 20, 0]
    assert last_value([], 1) is None


def test_over_time() -> None:
    series = {
        "configured": [(0.0, 1000.0)],
        "actual": [(0.5, 1000.0), (1.5, 800.0)],
        "hypervisor": [(0.0, 860.0), (1.0, 860.0), (2.0, 760.0), (9.0, 1.0)],
        "overhead": [(0.0, 60.0)],
        "free": [(0.5, 200.0), (1.5, 200.0)],
    }
    result = over_time(series)
    assert [t for t, _ in result] == [0, 1, 2], "where the balloon was not read there is no second"
    assert [(item.ballooned, item.resident, item.never_touched, item.unaccounted) for _, item in result] == [
        (0, 800, 200, 0),
        (100, 800, 100, 0),
        (200, 700, 100, 0),
    ]


def test_a_phases_means() -> None:
    metrics = {
        "guest:a": {
            "guest.memory_configured": 1000.0,
            "guest.memory_balloon_actual": 700.0,
            "guest.free": 200.0,
            "qemu.anon": 400.0,
            "qemu.shared": 60.0,
        }
        | {"qemu.overhead": 60.0},
        "container:a": {"memory.swap": 120.0},
        "swap:ours": {"swap.used": 200.0},
        "zram:zram1": {"zram.orig_data": 150.0},
        "server:a/pg": {"balloon.bytes": 250.0},
        "server:b/pg": {"balloon.bytes": 999.0},
    }
    assert from_means(metrics, "a") == MemoryBreakdown(1000, 400, 50, 250, 90, 30, 180, 0)
    assert from_means(metrics, "b") is None
    bare = {
        "guest:a": {"guest.memory_configured": 1000.0, "guest.memory_balloon_actual": 1000.0},
        "container:a": {"memory.anon": 500.0, "memory.shmem": 100.0},
    }
    result = from_means(bare, "a")
    assert result is not None and (result.resident, result.never_touched) == (600, 400)
    zswap = {**bare, "container:a": {"memory.anon": 500.0, "memory.swap": 100.0, "memory.zswapped": 40.0}}
    result = from_means(zswap, "a")
    assert result is not None and (result.compressed, result.swapped) == (40, 60)


def test_small_things() -> None:
    assert compressed_share(0, 5) == 0 and compressed_share(100, 25) == 0.25 and compressed_share(10, 25) == 1
    assert compressed_size(90, 3.0) == 30 and compressed_size(90, None) is None
    assert (
        hypervisor_memory(1, None, 7, 7) == 1 and hypervisor_memory(None, 1, 3, 4) == 7 and hypervisor_memory(None, None, None, 3) is None
    )
