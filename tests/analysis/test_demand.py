from __future__ import annotations

import numpy as np
import pytest

from pgherd.analysis.demand import fold, slot_labels
from pgherd.model.errors import UsageError


def test_slots_are_times_of_day():
    assert slot_labels(4) == ("00:00", "06:00", "12:00", "18:00") and slot_labels(288)[1] == "00:05"


def test_days_are_folded_by_percentile():
    days = np.arange(1, 12, dtype=np.float32).reshape(1, 1, 11)
    found = fold(["a"], ["cpu_cores"], days, [0] * 11, 1, 90)
    assert found.days == 11 and found.high.item() == pytest.approx(10) and found.low.item() == pytest.approx(2)


def test_one_day_keeps_the_order_of_its_slots():
    found = fold(["a"], ["cpu_cores"], np.array([[[3.0, 1.0, 2.0]]], np.float32), [2, 0, 1], 3)
    assert found.high.tolist() == [[[1.0, 2.0, 3.0]]] == found.low.tolist() and found.days == 1


def test_unknown_values_are_bounded_and_listed():
    values = np.array([[[1.0, np.nan, 3.0]], [[np.nan] * 3]], np.float32)
    found = fold(["a", "b"], ["cpu_cores"], values, [0, 1, 2], 3)
    assert found.high.tolist() == [[[1.0, 3.0, 3.0]], [[3.0] * 3]] and found.low.tolist() == [[[1.0, 1.0, 3.0]], [[0.0] * 3]]
    assert [(one.database, one.values, one.bound) for one in found.unknown] == [("a", 1, 3.0), ("b", 3, 3.0)]


def test_resource_without_any_value_is_refused():
    with pytest.raises(UsageError, match="no value of cpu_cores is known"):
        fold(["a"], ["cpu_cores"], np.full((1, 1, 2), np.nan, np.float32), [0, 1], 2)
