"""Classes from tables of known databases, and what any table loses by them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from pgherd.studies.density.tenant_activity import HOURS, Activity
from pgherd.studies.density.tenant_table import (
    FACTOR,
    MB,
    MOST_CLASSES,
    NIGHT,
    Loadable,
    TableClass,
    TableDatabase,
    TenantTable,
    classes_of,
    daily_load,
    document,
)

LOADABLE = Loadable(base=8 * MB, per_scale=15 * MB, largest_scale=400, least_rate=2.5)
HOUR = some.floats(0, 23.99)
DATABASES = some.lists(
    some.builds(
        TableDatabase,
        name=some.just("db"),
        size=some.floats(6, 14).map(lambda digits: 10**digits),
        tps=some.one_of(some.just(0.0), some.floats(-2, 4).map(lambda digits: 10**digits)),
        peak_hour=HOUR,
    ),
    min_size=1,
    max_size=40,
)


def group(number: int, size_mb: float, tps: float, hour: float) -> list[TableDatabase]:
    """Databases within 20 % of a size and a rate, and within half an hour of a peak."""
    return [
        TableDatabase(f"db{i}", MB * size_mb * (0.9 + 0.2 * i / number), tps * (1.1 - 0.2 * i / number), (hour - 0.5 + i / number) % 24)
        for i in range(number)
    ]


def many(classes: Sequence[TableClass]) -> int:
    """A mix of as many tenants as there are databases."""
    return 1000


def loads(databases: list[TableDatabase]) -> list[float]:
    """The load of all databases in each hour."""
    loaded = [one for one in databases if not LOADABLE.idle(one)]
    return [math.fsum(max(one.tps, 2.5) * daily_load(hour - one.peak_hour) for one in loaded) for hour in range(HOURS)]


def test_known_groups_are_the_classes():
    databases = [*group(40, 300, 20, 14), *group(10, 5000, 200, 2), *group(30, 300, 20, 2)]
    small_day, small_night, big = sorted(classes_of(databases, LOADABLE, many), key=lambda one: (one.scale, -one.peak_hour.mean))
    assert [one.databases for one in (small_day, small_night, big)] == [40, 30, 10]
    assert [one.name for one in (small_day, small_night, big)] == ["a-293mb-20tps-14h", "b-293mb-20tps-2h", "c-5gb-202tps-2h"]
    assert (small_day.scale, big.scale) == (19, 329) and big.rate == pytest.approx(200, rel=0.02)
    assert small_day.profile.index(max(small_day.profile)) == 14 and max(small_day.profile) == pytest.approx(1, abs=0.01)
    assert small_day.profile[2] == min(small_day.profile) == pytest.approx(NIGHT, abs=0.01)
    assert small_night.peak_hour.mean == pytest.approx(2, abs=0.1)
    assert all(one.size_kept == pytest.approx(1, abs=0.03) and one.tps_kept == pytest.approx(1, abs=0.01) for one in (small_day, big))
    assert (
        str(big) == "Class c-5gb-202tps-2h, 10 databases of 4.48 GB to 5.19 GB, 188 to 216 tps, peak at 1:35 to 2:19: scale 329, 202 tps."
    )


def test_a_peak_around_midnight_is_one_peak():
    (one,) = classes_of([*group(10, 300, 20, 23.5), *group(10, 300, 20, 0.5)], LOADABLE, many)
    assert (one.peak_hour.mean + 1) % 24 == pytest.approx(1, abs=0.1)
    assert one.peak_hour.low > 22.5 and one.peak_hour.high < 1.5
    assert max(one.profile) == one.profile[0]


@given(DATABASES)
@example([TableDatabase("a", 1e6, 0, 0), TableDatabase("b", 1e6, 0, 0), TableDatabase("c", 1e6, 0, 1)])
@settings(deadline=None)
def test_every_database_is_in_one_class_that_can_be_loaded(databases):
    classes = classes_of(databases, LOADABLE, many)
    assert sum(one.databases for one in classes) == len(databases) and len(classes) <= MOST_CLASSES
    assert sum(one.databases for one in classes if one.rate is None) == sum(map(LOADABLE.idle, databases))
    assert len({one.name for one in classes}) == len(classes)
    for one in classes:
        assert 1 <= one.scale <= LOADABLE.largest_scale and (one.rate is None or one.rate >= LOADABLE.least_rate)
        assert all(0 <= end < HOURS for end in (one.peak_hour.mean, one.peak_hour.low, one.peak_hour.high))
        if one.rate is not None:
            Activity(kind="daily", profile=one.profile)
            assert min(one.profile) >= NIGHT - 0.001 and max(one.profile) <= 1
        assert one.size.low <= one.size.high and one.tps.low <= one.tps.high


@given(DATABASES)
@settings(deadline=None)
def test_classes_keep_what_can_be_loaded_and_its_sum_in_every_hour(databases):
    nearest = [LOADABLE.nearest(one) for one in databases]
    classes = classes_of(nearest, LOADABLE, many)
    for one in classes:
        assert abs(one.size_kept - 1) * one.size.mean <= LOADABLE.per_scale / 2 + 1
        assert one.tps_kept == pytest.approx(1, abs=0.005) if one.rate is not None else not one.tps_kept
    loaded = [one for one in classes if one.rate is not None]
    for hour, load in enumerate(loads(databases)):
        assert math.fsum(one.databases * one.rate * one.profile[hour] for one in loaded) == pytest.approx(load, rel=0.012)


@given(DATABASES, some.integers(1, 60))
@settings(deadline=None)
def test_a_class_has_a_tenant_or_is_left_out(databases, tenants):
    classes = classes_of(databases, LOADABLE, lambda kept: tenants)
    kept = [one for one in classes if not one.left_out]
    assert sum(one.databases for one in classes) == len(databases)
    assert len(kept) == 1 or all(one.databases * tenants >= sum(other.databases for other in kept) for one in kept)
    for one in classes[len(kept) :]:
        assert one.left_out == f"it is less than one of {tenants} tenants, the largest mix"
        assert one.databases * tenants < len(databases)


def test_a_rare_class_joins_a_near_one_and_is_left_out_if_it_is_far():
    common = group(40, 300, 20, 14)

    def classes(tps: float, tenants: int) -> list[tuple[int, bool]]:
        found = classes_of([*common, TableDatabase("rare", 300 * MB, tps, 14)], LOADABLE, lambda kept: tenants)
        return [(one.databases, bool(one.left_out)) for one in found]

    assert classes(20 * 15, 41) == [(40, False), (1, False)] and classes(20 * 17, 41) == [(40, False), (1, False)]
    assert classes(20 * 15, 40) == [(41, False)], "joined"
    assert classes(20 * 17, 40) == [(40, False), (1, True)]


def test_limits_are_stated_with_the_databases_that_they_change():
    databases = [TableDatabase("a", 2**40, 0, 1), TableDatabase("b", 2**20, 500, 1), TableDatabase("c", 2**27, 1, 1)]
    assert LOADABLE.changes(databases) == [
        "Databases of more than 5.87 GB have that size, the largest that is loaded: 1 of 3.",
        "Databases of less than 23 MB have that size, the smallest one: 1 of 3.",
        "Databases of 0.625 to 2.5 tps have 2.5 tps, the lowest rate of a block: 1 of 3.",
        "Databases of less than 0.625 tps are idle: 1 of 3.",
    ]
    assert LOADABLE.changes([TableDatabase("d", 2**27, 5, 1)]) == []
    found = {one.scale: one for one in classes_of(databases, LOADABLE, many)}
    assert found[400].size_kept == pytest.approx(LOADABLE.size(400) / 2**40) and found[400].tps_kept is None
    assert found[1].size_kept == 23


def test_distances_are_a_factor_in_size_and_rate_and_hours_of_the_peak():
    def classes(*others: TableDatabase) -> int:
        return len(classes_of([TableDatabase("a", 100 * MB, 100, 12), *others], LOADABLE, many))

    near, far = (1 - 0.01) * FACTOR**2, (1 + 0.01) * FACTOR**2  # the centre is between the two
    assert [classes(TableDatabase("b", 100 * MB, 100 * factor, 12)) for factor in (near, far)] == [1, 2]
    assert [classes(TableDatabase("b", 100 * MB * factor, 100, 12)) for factor in (near, far)] == [1, 2]
    assert [classes(TableDatabase("b", 100 * MB, 100, hour)) for hour in (19.9, 20.1, 4.1, 3.9)] == [1, 2, 1, 2], "4 h from their centre"


def test_the_summary_has_the_shares_of_the_table():
    one = TableClass(
        name="a",
        databases=9,
        scale=1,
        rate=10,
        profile=(1.0,) * 24,
        size_kept=1.1,
        tps_kept=0.9,
        size={"mean": 10 * MB, "low": MB, "high": 20 * MB},
        tps={"mean": 10, "low": 5, "high": 15},
        peak_hour={"mean": 12, "low": 11, "high": 13},
    )
    rare = one.model_copy(update={"name": "b", "databases": 1, "left_out": "it is rare"})
    table = TenantTable(source="fleet.csv", classes=(one, rare), document="")
    assert table.summary() == "10 databases of fleet.csv are 1 class of tenants, with 99 % of the size and 81 % of the tps; 1 is left out."
    kept, left = table.rows()
    assert kept["size"].value == 10 and (kept["size"].low, kept["size"].high) == (1, 20) and kept["size_kept"] == 1.1
    assert left["left_out"] == "it is rare" and left["size_kept"] == left["tps_kept"] == 0


def test_databases_without_a_load_are_idle_classes_of_their_own():
    idle = [TableDatabase(f"idle{i}", 100 * MB * (1 + i % 2 * 99), 0.3 * (i % 3), 5) for i in range(20)]
    classes = classes_of([*group(10, 100, 3, 14), *idle], LOADABLE, many)
    assert [(one.name, one.databases, one.rate) for one in classes] == [
        ("a-98mb-3tps-14h", 10, 3.03),
        ("b-98mb-idle", 10, None),
        ("c-6gb-idle", 10, None),
    ]
    assert str(classes[1]).endswith(", 0 to 0.6 tps, peak at 5:00 to 5:00: scale 6, idle.") and classes[1].tps_kept == 0
    (entry,) = document([classes[1]], {"vcpus": 0.5}, {"b-98mb-idle": {}})["classes"]
    assert entry == {"name": "b-98mb-idle", "count": 10, "vcpus": 0.5, "scale": 6, "activity": "idle"}
    rare = classes_of([*group(40, 100, 3, 14), TableDatabase("idle", 100 * MB, 0, 14)], LOADABLE, lambda kept: 40)
    assert [(one.databases, bool(one.left_out)) for one in rare] == [(40, False), (1, True)], "it joins no class with a load"


def test_the_document_has_all_options_of_a_class():
    (one,) = classes_of(group(10, 300, 20, 14), LOADABLE, many)
    assert document([one], {"vcpus": 0.5}, {one.name: {"memory": "256MB"}}) == {
        "classes": [
            {
                "name": "a-293mb-20tps-14h",
                "count": 10,
                "vcpus": 0.5,
                "memory": "256MB",
                "scale": 19,
                "rate": one.rate,
                "activity": {"kind": "daily", "profile": list(one.profile)},
            }
        ]
    }
