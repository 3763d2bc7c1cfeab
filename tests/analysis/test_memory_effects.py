import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.memory_effects import Effects, Sighting, at, compressible, effects, hypervisor, last, mean, of_means, over_time, taken

MB = 2.0**20
sizes = st.floats(0, 1e13)
sightings = st.builds(
    Sighting,
    configured=sizes,
    actual=sizes,
    held=sizes,
    overhead=sizes,
    swapped=sizes,
    compressible=st.floats(0, 1),
    free=st.none() | sizes,
    database=sizes,
)


@given(sightings)
def test_the_parts_and_the_residue_are_the_configured_memory(seen) -> None:
    found = effects(seen)
    assert found.accounted + found.residue == pytest.approx(seen.configured, rel=1e-9, abs=1e-2)
    parts = (found.resident, found.by_kernel, found.by_database, found.compressed, found.swapped, found.untouched)
    assert all(one >= 0 for one in parts)


@given(sightings)
def test_the_databases_balloon_is_a_part_of_the_kernels_and_adds_nothing(seen) -> None:
    found = effects(seen)
    without = effects(Sighting(**{**vars(seen), "database": 0.0}))
    assert found.ballooned == pytest.approx(without.ballooned)
    assert found.by_database <= min(seen.database, found.ballooned) + 1e-6
    assert found.residue == pytest.approx(without.residue) and found.untouched == without.untouched


@given(sightings)
def test_untouched_is_never_more_than_the_guest_calls_free(seen) -> None:
    if seen.free is not None:
        assert effects(seen).untouched <= seen.free


@given(st.lists(sightings, min_size=1, max_size=6))
def test_means_add_up_too(seen) -> None:
    found = mean(effects(one) for one in seen)
    assert found is not None
    assert found.accounted + found.residue == pytest.approx(found.configured, rel=1e-6, abs=1.0)
    assert mean([]) is None


def test_a_guest_of_which_all_is_known() -> None:
    """1000 MB configured; 300 in its balloon, 250 of them from the database; 400 in memory, in addition
    to the hypervisor's 60; 120 swapped, three quarters of it compressed; 180 never touched."""
    seen = Sighting(configured=1000, actual=700, held=460, overhead=60, swapped=120, compressible=0.75, free=200, database=250)
    assert effects(seen) == Effects(1000, 400, 50, 250, 90, 30, 180, 0)
    assert effects(seen).ballooned == 300 and effects(seen).gap == 0


def test_what_the_host_still_holds_of_a_balloon_is_a_negative_residue() -> None:
    found = effects(Sighting(configured=1000, actual=600, held=1000, free=0))
    assert (found.resident, found.ballooned, found.residue, found.gap) == (1000, 400, -400, -0.4)


def test_what_nothing_explains_is_a_positive_residue() -> None:
    assert effects(Sighting(configured=1000, actual=1000, held=600, free=100)).residue == 300
    assert effects(Sighting(configured=1000, actual=1000, held=600)).residue == 0, "the guest does not report its free memory"


def test_readings_at_other_instants() -> None:
    series = [(0.0, 10.0), (2.0, 20.0), (10.0, 0.0)]
    assert [at(series, t) for t in (-1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 9.0, 13.0)] == [10, 10, 15, 20, 20, None, 0, None]
    assert at([], 1) is None
    assert [last(series, t) for t in (-5.0, 0.0, 9.0, 99.0)] == [10, 10, 20, 0]
    assert last([], 1) is None


def test_over_time() -> None:
    series = {
        "configured": [(0.0, 1000.0)],
        "actual": [(0.5, 1000.0), (1.5, 800.0)],
        "held": [(0.0, 860.0), (1.0, 860.0), (2.0, 760.0), (9.0, 1.0)],
        "overhead": [(0.0, 60.0)],
        "free": [(0.5, 200.0), (1.5, 200.0)],
    }
    found = over_time(series)
    assert [t for t, _ in found] == [0, 1, 2], "where the balloon was not read there is no second"
    assert [(one.ballooned, one.resident, one.untouched, one.residue) for _, one in found] == [
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
    assert of_means(metrics, "a") == Effects(1000, 400, 50, 250, 90, 30, 180, 0)
    assert of_means(metrics, "b") is None
    bare = {
        "guest:a": {"guest.memory_configured": 1000.0, "guest.memory_balloon_actual": 1000.0},
        "container:a": {"memory.anon": 500.0, "memory.shmem": 100.0},
    }
    found = of_means(bare, "a")
    assert found is not None and (found.resident, found.untouched) == (600, 400)
    zswap = {**bare, "container:a": {"memory.anon": 500.0, "memory.swap": 100.0, "memory.zswapped": 40.0}}
    found = of_means(zswap, "a")
    assert found is not None and (found.compressed, found.swapped) == (40, 60)


def test_small_things() -> None:
    assert compressible(0, 5) == 0 and compressible(100, 25) == 0.25 and compressible(10, 25) == 1
    assert taken(90, 3.0) == 30 and taken(90, None) is None
    assert hypervisor(1, None, 7, 7) == 1 and hypervisor(None, 1, 3, 4) == 7 and hypervisor(None, None, None, 3) is None
