"""Factors of tenants by kind of activity, phase and number of tenants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from pgherd.studies.density.tenant_activity import ELASTICITY, HOURS, Activity

TENANTS, PHASES = some.integers(1, 60), some.sampled_from([8, 24])


def table(activity: Activity, tenants: int, phases: int, seed: int = 1) -> list[list[float]]:
    """Factors of each tenant by phase."""
    return [[activity.factor(tenant, tenants, phase, phases, seed) for phase in range(phases)] for tenant in range(tenants)]


def test_constant_is_always_the_rate():
    assert table(Activity(), 3, 8) == [[1.0] * 8] * 3


def test_idle_is_never_a_load():
    assert table(Activity(kind="idle"), 3, 8) == [[0.0] * 8] * 3


@given(TENANTS, PHASES, some.floats(0.01, 1), some.sampled_from(["spread", "aligned", "random"]), some.integers(0, 99))
def test_on_off_is_on_for_its_part_of_a_cycle(tenants, phases, duty, start, seed):
    rows = table(Activity(kind="on-off", duty=duty, start=start), tenants, phases, seed)
    on = max(1, round(duty * phases))
    for row in rows:
        assert set(row) <= {0.0, 1.0} and sum(row) == on
        assert sum(row[i] != row[i - 1] for i in range(phases)) in (0, 2), "on once in a cycle"
    if start == "aligned":
        assert all(row == rows[0] for row in rows)


def test_spread_tenants_are_on_in_turn():
    """Of many tenants with a duty of a quarter, about a quarter is on in each phase; aligned ones are all on or all off."""
    spread = table(Activity(kind="on-off", duty=0.25), 40, 8)
    assert all(8 <= sum(row[phase] for row in spread) <= 12 for phase in range(8))
    aligned = table(Activity(kind="on-off", duty=0.25, start="aligned"), 40, 8)
    assert {sum(row[phase] for row in aligned) for phase in range(8)} == {0, 40}


@given(TENANTS, some.floats(0.1, 3))
def test_zipf_has_the_mean_of_the_class_and_a_power_law(tenants, exponent):
    factors = [row[0] for row in table(Activity(kind="zipf", exponent=exponent), tenants, 8)]
    assert sum(factors) == pytest.approx(tenants)
    assert all(factors[0] / factor == pytest.approx((k + 1) ** exponent) for k, factor in enumerate(factors))


def test_daily_is_the_profile():
    profile = tuple(hour / 10 for hour in range(HOURS))
    assert table(Activity(kind="daily", profile=profile), 2, 24) == [list(profile)] * 2


@given(TENANTS, PHASES)
def test_elastic_varies_16_fold_with_a_constant_sum(tenants, phases):
    rows = table(Activity(kind="elastic"), tenants, phases)
    assert all(sum(row[phase] for row in rows) == pytest.approx(tenants) for phase in range(phases))
    paired = rows[: tenants // 2 * 2]
    assert all(max(row) / min(row) == pytest.approx(ELASTICITY) for row in paired)
    assert rows[len(paired) :] in ([], [[1.0] * phases])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "on-off"}, "activity on-off needs 'duty'"),
        ({"kind": "zipf", "duty": 0.5, "exponent": 1}, "'duty' 0.5 is for activity on-off, and the activity is zipf"),
        ({"kind": "daily", "profile": [1, 2]}, "'profile' has 2 values, and a day has 24 hours"),
        ({"kind": "daily", "profile": [0] * 24}, "'profile' has factors of at least 0, of which one is more"),
        ({"kind": "weekly"}, "Input should be 'constant'"),
    ],
)
def test_a_wrong_activity_is_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        Activity.model_validate(fields)
