from pathlib import Path

from pgherd.host import swap_areas
from pgherd.host.swap_areas import SwapArea, parse_areas

CAPTURED = Path(__file__).parent.parent / "fixtures/metrics/proc-swaps"


def test_reads_what_the_kernel_writes():
    assert parse_areas(CAPTURED.read_text()) == [
        SwapArea("/srv/other/swap", "file", 2097148 * 1024, 32 * 1024, 100),
        SwapArea("/dev/zram1", "partition", 65532 * 1024, 8888 * 1024, 101),
        SwapArea("/srv/a b/pgherd-8cc2ab94.swap", "file", 8188 * 1024, 3192 * 1024, 102),
    ]


def test_a_negative_priority_and_no_area_at_all():
    assert parse_areas("Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n")[0].priority == -2
    assert parse_areas("Filename\tType\tSize\tUsed\tPriority\n") == []
    assert parse_areas("") == []


def test_switching_off_what_is_not_on_is_nothing(fake_swap):
    node = fake_swap.SwapNode()
    assert swap_areas.off(node, "/dev/zram1") is False
    node.areas["/dev/zram1"] = ("partition", 4096, 1)
    node.zram[1] = fake_swap.Device()
    assert swap_areas.off(node, "/dev/zram1") is True
    assert swap_areas.areas(node) == []


def test_devices_by_number(fake_swap):
    node = fake_swap.SwapNode()
    node.zram[12] = fake_swap.Device()
    assert swap_areas.zram_numbers(node) == [0, 12]
