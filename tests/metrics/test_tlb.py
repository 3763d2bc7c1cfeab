from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics import tlb
from pgherd.node.protocol import SampleSource

FIXTURES = Path(__file__).parents[1] / "fixtures/metrics"
SOURCE = SampleSource("tlb", "server:db01/pg", "file", "perf.txt")
# The form of perf stat -x; -I (perf-stat(1), CSV FORMAT), as in the captured text beside it; no machine with counters was at hand.
COUNTED = """# started on Sun Nov 22 03:23:01 2026

     0.500126083;1000;;dTLB-load-misses:u;500000000;83.20;;
     0.500126083;200;;dTLB-store-misses:u;500000000;83.20;;
     0.500126083;700;;dtlb_load_misses.walk_completed;500000000;83.20;;
     0.500126083;100;;dtlb_store_misses.walk_completed;500000000;83.20;;
     0.500126083;9000000;;cycles;500000000;83.20;;
     1.000226083;<not counted>;;dTLB-load-misses:u;0;100.00;;
     1.000226083;50;;dTLB-store-misses:u;500000000;83.20;;
     1.000226083;10;;dtlb_load_misses.walk_completed;500000000;83.20;;
     1.000226083;5;;dtlb_store_misses.walk_completed;500000000;83.20;;
     1.000226083;1000000;;cycles;500000000;83.20;;
     1.500326083;77;;dTLB-lo"""


def test_what_a_virtual_machine_shows_is_nothing() -> None:
    """Captured where the processor's counters are not passed on; the other events are none of ours."""
    text = (FIXTURES / "perf-stat-virtual-machine.txt").read_text()
    assert "<not supported>" in text
    assert list(tlb.intervals(text)) == [] and list(tlb.readings(text, 100.0, "server:a")) == []


def test_intervals_and_growing_counters() -> None:
    found = list(tlb.intervals(COUNTED))
    assert [at for at, _ in found] == [0.500126083, 1.000226083]
    assert found[0][1] == {"tlb.load_misses": 1000, "tlb.store_misses": 200, "tlb.walks": 800, "tlb.cycles": 9e6}
    assert found[1][1] == {"tlb.load_misses": 0, "tlb.store_misses": 50, "tlb.walks": 15, "tlb.cycles": 1e6}
    grown = list(tlb.readings(COUNTED, 100.0, "server:a"))
    assert [(round(t, 3), sampler, entity) for t, sampler, entity, _ in grown] == [
        (100.0, "tlb", "server:a"), (100.5, "tlb", "server:a"), (101.0, "tlb", "server:a")
    ]  # fmt: skip
    assert [values["tlb.walks"] for *_, values in grown] == [0, 800, 815]
    [(entity, totals)] = tlb.SAMPLER.parse(COUNTED, SOURCE)
    assert entity == "server:db01/pg" and totals["tlb.store_misses"] == 250


def test_every_event_leads_to_a_metric_of_the_sampler() -> None:
    assert set(tlb.EVENTS) == {metric.name for metric in tlb.SAMPLER.metrics}


@pytest.mark.parametrize("text", ["no perf", "x;1;;cycles;1;100"])
def test_text_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="perf stat"):
        list(tlb.intervals(text))


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    try:
        list(tlb.intervals(text))
    except ValueError as error:
        assert "perf stat" in str(error)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_counters_never_fall_and_end_at_the_sum(counts: list[int]) -> None:
    text = "".join(f"{index + 1}.5;{count};;cycles;1;100.00;;\n" for index, count in enumerate(counts))
    values = [found["tlb.cycles"] for *_, found in tlb.readings(text, 0.0, "x")]
    assert values == sorted(values) and values[-1] == sum(counts) and len(values) == len(counts) + 1
