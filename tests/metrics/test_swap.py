import pytest

from pgherd.metrics.sampler import SamplingView, SwapView
from pgherd.metrics.swap import OURS, SWAP, ZRAM
from pgherd.node.protocol import SampleSource

# ---- swap areas


def test_tells_our_area_from_others(parsed) -> None:
    found = parsed("swap", "proc-swaps", "/dev/zram1", "swap")
    assert found == {
        "swap:swap": {"swap.size": 2097148 * 1024, "swap.used": 32 * 1024},
        OURS: {"swap.size": 65532 * 1024, "swap.used": 8888 * 1024},
        "swap:pgherd-8cc2ab94.swap": {"swap.size": 8188 * 1024, "swap.used": 3192 * 1024},
    }
    assert OURS in parsed("swap", "proc-swaps", "/srv/a b/pgherd-8cc2ab94.swap", "swap"), "a blank is escaped in the file"


def test_is_read_where_a_run_has_made_swap() -> None:
    assert SWAP.sources(SamplingView()) == []
    (source,) = SWAP.sources(SamplingView(swap=SwapView("/dev/zram3", 3)))
    assert (source.where, source.tag) == ("/proc/swaps", "/dev/zram3")


@pytest.mark.parametrize("raw", ["", "something else", "Filename Type Size Used Priority\n/dev/x partition"])
def test_refuses_other_text(raw: str) -> None:
    with pytest.raises(ValueError, match="/proc/swaps"):
        list(SWAP.parse(raw, SampleSource("swap", "swap", "file", "/proc/swaps")))


# ---- zram


def test_reads_what_is_held_and_what_it_takes(parsed) -> None:
    values = parsed("zram", "zram-mm_stat", entity="zram:zram1")["zram:zram1"]
    assert values == {
        "zram.orig_data": 9105408,
        "zram.compr_data": 9101392,
        "zram.mem_used": 9113600,
        "zram.mem_limit": 33554432,
        "zram.mem_used_max": 16834560,
        "zram.same_pages": 0,
    }


def test_reads_the_runs_own_device_only() -> None:
    assert ZRAM.sources(SamplingView()) == []
    assert ZRAM.sources(SamplingView(swap=SwapView("/srv/x.swap"))) == []
    (source,) = ZRAM.sources(SamplingView(swap=SwapView("/dev/zram3", 3)))
    assert (source.entity, source.where) == ("zram:zram3", "/sys/block/zram3/mm_stat")


def test_refuses_other_text_of_zram() -> None:
    with pytest.raises(ValueError, match="mm_stat"):
        list(ZRAM.parse("1 2 3", SampleSource("zram", "zram:zram1", "file", "/x")))
