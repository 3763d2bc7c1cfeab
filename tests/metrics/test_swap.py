import pytest

from pgherd.metrics.sampler import SwapView, View
from pgherd.metrics.swap import OURS, SAMPLER
from pgherd.node.protocol import Source


def test_tells_our_area_from_others(parsed) -> None:
    found = parsed("swap", "proc-swaps", "/dev/zram1", "swap")
    assert found == {
        "swap:swap": {"swap.size": 2097148 * 1024, "swap.used": 32 * 1024},
        OURS: {"swap.size": 65532 * 1024, "swap.used": 8888 * 1024},
        "swap:pgherd-8cc2ab94.swap": {"swap.size": 8188 * 1024, "swap.used": 3192 * 1024},
    }
    assert OURS in parsed("swap", "proc-swaps", "/srv/a b/pgherd-8cc2ab94.swap", "swap"), "a blank is escaped in the file"


def test_is_read_where_a_run_has_made_swap() -> None:
    assert SAMPLER.sources(View()) == []
    (source,) = SAMPLER.sources(View(swap=SwapView("/dev/zram3", 3)))
    assert (source.where, source.tag) == ("/proc/swaps", "/dev/zram3")


@pytest.mark.parametrize("raw", ["", "something else", "Filename Type Size Used Priority\n/dev/x partition"])
def test_refuses_other_text(raw: str) -> None:
    with pytest.raises(ValueError, match="/proc/swaps"):
        list(SAMPLER.parse(raw, Source("swap", "swap", "file", "/proc/swaps")))
