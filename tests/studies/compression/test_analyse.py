import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.studies.compression.analyse import Stratum, ratio, segments_by_relation
from pgherd.studies.compression.study import STUDY


def test_every_kind_gets_its_ratio_with_e15_beside(options, results):
    analysis = STUDY.analyse(options(), results())
    assert analysis.grade == "A"
    assert analysis.findings["ratio_pgbench"].value == pytest.approx(8.0, rel=1e-3)
    assert analysis.findings["ratio_realistic"].published.startswith("≈ 2:1") and analysis.findings["ratio_realistic"].n == 8
    assert analysis.findings["ratio_realistic_encrypted"].value == pytest.approx(1)
    assert "pgbench 8:1" in analysis.answer and "encrypted first, it does not compress" in analysis.answer and "32 kB" in analysis.answer


def test_the_warning_about_filler_shows_its_numbers(options, results):
    warnings = STUDY.analyse(options(), results()).warnings
    assert any("pgbench's filler compresses 8:1, realistic values 1.8:1 (4.4 times less)" in text for text in warnings)


@pytest.mark.parametrize(("ratio", "message"), [(1.9, None), (1.0, "pgbench's filler compresses only 1:1")])
def test_filler_that_does_not_mislead_is_not_warned_of(options, results, ratio, message):
    warnings = [text for text in STUDY.analyse(options(), results(ratios={"pgbench": ratio})).warnings if "misleads" in text]
    assert warnings == [] if message is None else message in warnings[0]


def test_tables_hold_every_codec_and_block_and_each_relation(options, results):
    tables = STUDY.analyse(options(), results()).tables
    assert [row["data"] for row in tables["compression"]] == ["pgbench", "pgbench", "orders", "orders", "realistic", "realistic"]
    assert len(tables["ratios"]) == 6 * 2 * 6
    small = next(row for row in tables["ratios"] if row["block"] == "4 kB" and row["form"] == "plain")
    assert small["ratio_4k"].value == 1.0 and small["ratio"].value > 7, "a block of one sector cannot shrink"
    assert {row["relation"] for row in tables["relations"]} == {"public.a/b"}
    assert tables["relations"][0]["segments"] == "8 of 100"


def test_few_segments_lower_the_grade(options, results):
    analysis = STUDY.analyse(options(), results(segments=3))
    assert analysis.grade == "B" and analysis.findings["ratio_pgbench"].low is None


def test_a_kind_that_failed_is_said(options, results):
    analysis = STUDY.analyse(options(), results(failed=("orders",)))
    assert analysis.grade == "B" and "orders could not be compressed: no room" in analysis.warnings
    assert "ratio_orders_vs_realistic" not in analysis.findings


def test_nothing_is_grade_c(options, results):
    analysis = STUDY.analyse(options(), results(failed=("pgbench", "orders", "realistic")))
    assert analysis.grade == "C" and "No result" in analysis.answer and analysis.tables == {}
    assert STUDY.analyse(options(), []).grade == "C"


def test_what_a_file_system_made_of_it_stands_in_the_table(options, results):
    result = results()
    probe = dict(result[0].probe)
    for segment in range(8):
        probe[f"compressed_bytes/file-system/0/{segment}/public.a/b"] = probe[f"stored_bytes/file-system/0/{segment}/public.a/b"] = 2**19
    tables = STUDY.analyse(options(), [result[0].model_copy(update={"probe": probe}), *result[1:]]).tables
    assert tables["compression"][0]["file_system"].value == pytest.approx(2.0)
    assert any(row["codec"] == "file-system" and row["block"] == "its own" for row in tables["ratios"])


@given(st.text(min_size=1, max_size=20))
def test_a_relation_may_have_any_name(name):
    probe = {f"raw_bytes/3/{name}": 100.0, f"compressed_bytes/lz4/8192/3/{name}": 40.0, f"stored_bytes/lz4/8192/3/{name}": 60.0}
    result = segments_by_relation(probe | {f"size_bytes/{name}": 1000.0, f"segments/{name}": 10.0, "unknown": 1.0})
    assert list(result) == [name]
    item = result[name]
    assert (item.size, item.segments, item.raw) == (1000.0, 10, {3: 100.0})
    assert item.compressed == {("lz4", 8192): {3: 40.0}} and item.stored == {("lz4", 8192): {3: 60.0}}


def test_data_that_a_short_run_left_out_is_named(options, results):
    analysis = STUDY.analyse(options(), results()[:3])
    remaining = "orders (encrypted first), realistic, realistic (encrypted first)"
    assert f"Not compressed, because the run ended before: {remaining}" in analysis.warnings
    assert analysis.grade == "B" and not any("ended before" in warning for warning in STUDY.analyse(options(), results()).warnings)


def test_a_census_is_exact_and_weighted_by_size():
    result = ratio([Stratum("a", 300, 1, [100], [50]), Stratum("b", 100, 1, [100], [100])])
    assert result.value == pytest.approx(1 / (0.75 * 0.5 + 0.25 * 1.0))
    assert result.low == result.high == result.value and "every segment was read" in result.note


def test_long_segments_count_for_more():
    assert ratio([Stratum("a", 10, 2, [900, 100], [90, 100])]).value == pytest.approx(1000 / 190)


def test_few_segments_have_no_interval_and_name_the_part():
    result = ratio([Stratum("big", 1000, 50, [10, 10, 10], [5, 6, 5])])
    assert result.low is None and "fewer than 4 segments of big" in result.note


@pytest.mark.parametrize("n", [4, 8, 30])
def test_the_interval_covers_the_whole_as_often_as_it_says(n):
    """A known population of segments, sampled again and again: 95 % intervals hold its ratio in about 95 of 100."""
    rng = random.Random(7)
    population = [1000 * rng.uniform(0.2, 0.9) for _ in range(2000)]
    truth = 1000 * len(population) / sum(population)
    held = 0
    for seed in range(1000):
        sample = random.Random(seed).sample(population, n)
        result = ratio([Stratum("a", 2_000_000, 2000, [1000.0] * n, sample)])
        held += result.low <= truth <= result.high
    assert 922 <= held <= 978, held  # 0.95 · 1000 ± 4 standard errors


@pytest.mark.parametrize("n", [4, 8])
def test_the_interval_of_strata_of_different_spread_covers_too(n):
    """Segments of different length in three strata, of which one was read completely."""
    rng = random.Random(7)

    def segments(number, low, high):
        raw = [1000.0 * rng.uniform(0.5, 1.5) for _ in range(number)]
        return raw, [size * rng.uniform(low, high) for size in raw]

    wholes = [segments(2000, 0.2, 0.8), segments(1000, 0.4, 0.5), segments(3, 0.9, 1.0)]
    truth = sum(sum(raw) for raw, _ in wholes) / sum(sum(compressed) for _, compressed in wholes)
    held = 0
    for seed in range(1000):
        chance, strata = random.Random(seed), []
        for number, (raw, compressed) in enumerate(wholes):
            chosen = chance.sample(range(len(raw)), min(n, len(raw)))
            strata.append(Stratum(str(number), sum(raw), len(raw), [raw[i] for i in chosen], [compressed[i] for i in chosen]))
        result = ratio(strata)
        held += result.low <= truth <= result.high
    assert 915 <= held <= 978, held  # as above, less a little for the linear variance of few segments of different length


def test_nothing_is_no_ratio():
    with pytest.raises(ValueError, match="at least one segment"):
        ratio([])


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1)), min_size=1, max_size=30), st.integers(0, 100))
def test_any_segments_give_a_ratio_within_their_extremes(pairs, beyond):
    raw, compressed = [size for size, _ in pairs], [size * share for size, share in pairs]
    result = ratio([Stratum("a", sum(raw), len(raw) + beyond, raw, compressed)])
    shares = [share for _, share in pairs]
    assert 1 / max(shares) <= result.value * (1 + 1e-9) and result.value <= 1 / min(shares) * (1 + 1e-9)
    assert result.low is None or (result.low <= result.value <= result.high and math.isfinite(result.high))
