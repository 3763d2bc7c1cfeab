import pytest

from pgherd.metrics.sampler import SwapView, View
from pgherd.metrics.zram import SAMPLER
from pgherd.node.protocol import Source


def test_reads_what_is_held_and_what_it_takes(parsed) -> None:
    values = parsed("zram", "zram-mm_stat", entity="zram:zram1")["zram:zram1"]
    assert values == {
        "zram.original": 9105408,
        "zram.compressed": 9101392,
        "zram.used": 9113600,
        "zram.limit": 33554432,
        "zram.used_most": 16834560,
        "zram.same": 0,
    }


def test_reads_the_runs_own_device_only() -> None:
    assert SAMPLER.sources(View()) == []
    assert SAMPLER.sources(View(swap=SwapView("/srv/x.swap"))) == []
    (source,) = SAMPLER.sources(View(swap=SwapView("/dev/zram3", 3)))
    assert (source.entity, source.where) == ("zram:zram3", "/sys/block/zram3/mm_stat")


def test_refuses_other_text() -> None:
    with pytest.raises(ValueError, match="mm_stat"):
        list(SAMPLER.parse("1 2 3", Source("zram", "zram:zram1", "file", "/x")))
