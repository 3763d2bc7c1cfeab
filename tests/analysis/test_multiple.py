"""Intervals of many metrics at once."""

from __future__ import annotations

import math
import random

import pytest
from pytest import approx

from pgherd.analysis.multiple import simultaneous
from pgherd.analysis.sequential import decide


def metrics(rng: random.Random, blocks: int, count: int, ratio: float = 1.0) -> dict[str, tuple[list[float], list[float]]]:
    """A primary metric and others that go along with it."""
    shared = [rng.gauss(0, 0.05) for _ in range(blocks)]
    found = {}
    for number in range(count + 1):
        own = [rng.gauss(0, 0.03) if number else 0.0 for _ in range(blocks)]
        found["primary" if number == 0 else f"other {number}"] = (
            [ratio * math.exp(a + b) for a, b in zip(shared, own, strict=True)],
            [1.0] * blocks,
        )
    return found


def test_all_but_the_primary() -> None:
    pairs = metrics(random.Random(1), 20, 4)
    found = simultaneous(pairs, "primary", most=20)
    assert list(found) == ["other 1", "other 2", "other 3", "other 4"]
    for estimate in found.values():
        assert estimate.low < estimate.value < estimate.high
        assert (estimate.confidence, estimate.n) == (0.95, 20)
        assert "one of 4 simultaneous intervals (Bonferroni)" in estimate.method and "Wilcoxon" in estimate.method


def test_wider_the_more_there_are() -> None:
    pairs = metrics(random.Random(2), 20, 8)
    alone = simultaneous({name: pairs[name] for name in ("primary", "other 1")}, "primary", most=20)["other 1"]
    among = simultaneous(pairs, "primary", most=20)["other 1"]
    assert among.low < alone.low and among.high > alone.high and among.value == alone.value
    assert "simultaneous" not in alone.method
    # One other metric is looked at as the primary one is, but what rounding leaves is not handed on to later looks.
    own = decide(*pairs["other 1"], most=20).estimate
    assert alone.low <= own.low and alone.high >= own.high


def test_few_blocks_have_students_interval_and_say_so() -> None:
    found = simultaneous(metrics(random.Random(3), 8, 8, 1.2), "primary", most=20)["other 1"]
    assert found.n == 8 and found.low < found.value < found.high
    assert "t interval" in found.method and "taken to be normal" in found.note


def test_the_look_is_the_primarys() -> None:
    pairs = metrics(random.Random(4), 11, 2)
    assert simultaneous(pairs, "primary", most=20)["other 1"].n == 8  # the last look was at eight blocks
    assert simultaneous(pairs, "primary", most=20, last=True)["other 1"].n == 11
    early = simultaneous({name: (a[:5], b[:5]) for name, (a, b) in pairs.items()}, "primary", most=20)["other 1"]
    assert early.low is None and early.value > 0 and "no interval yet" in early.note


def test_a_metric_without_a_ratio_takes_no_part() -> None:
    pairs = metrics(random.Random(5), 20, 2)
    extended = {**pairs, "WAL": ([0.0] * 20, [0.0] * 20), "unseen": ([None] * 20, [1.0] * 20)}
    assert simultaneous(extended, "primary", most=20) == simultaneous(pairs, "primary", most=20)
    assert simultaneous({"primary": pairs["primary"]}, "primary", most=20) == {}


def test_missing_blocks_and_no_spread() -> None:
    pairs = metrics(random.Random(6), 20, 1)
    values = [None, *pairs["other 1"][0][1:]]
    found = simultaneous({**pairs, "other 1": (values, pairs["other 1"][1]), "same": ([2.0] * 20, [2.0] * 20)}, "primary", most=20)
    assert found["other 1"].n == 19 and found["other 1"].note == "1 of 20 blocks have no pair"
    assert found["same"].low == found["same"].high == 1 and "do not differ" in found["same"].note


def test_no_primary() -> None:
    with pytest.raises(KeyError):
        simultaneous({}, "tps", most=10)
    with pytest.raises(ValueError, match="no ratio"):
        simultaneous({"tps": ([0.0], [1.0])}, "tps", most=10)


def test_joint_error_rate(seed: int) -> None:
    """Of six metrics that go along with the primary, any is called different in at most 5 % of studies that stop by the rule."""
    rng, wrong = random.Random(seed), 0
    for _ in range(400):
        pairs, blocks = metrics(rng, 20, 6), 8
        while not decide(*(side[:blocks] for side in pairs["primary"]), most=20).stop:
            blocks += 1
        cut = {name: (a[:blocks], b[:blocks]) for name, (a, b) in pairs.items()}
        wrong += any(not e.low <= 1 <= e.high for e in simultaneous(cut, "primary", most=20).values())
    assert wrong <= 0.11 * 400  # 2.5 % are to be expected; without a correction it would be 20 %


def test_the_same_as_the_primary_where_the_data_are() -> None:
    pairs = metrics(random.Random(8), 20, 0)
    found = simultaneous({**pairs, "copy": pairs["primary"]}, "primary", most=20)["copy"]
    assert found.value == approx(decide(*pairs["primary"], most=20).estimate.value)
