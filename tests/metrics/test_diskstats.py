import pytest

from pgherd.metrics.diskstats import SAMPLER
from pgherd.metrics.sampler import View

(SOURCE,) = SAMPLER.sources(View())


def names(*devices: str) -> list[str]:
    return [entity for entity, _ in SAMPLER.parse("\n".join(f"8 0 {name}" + " 1" * 17 for name in devices), SOURCE)]


def test_reads_whole_devices_with_io(parsed) -> None:
    assert parsed("diskstats", "proc-diskstats") == {
        "disk:vda": pytest.approx(
            {
                "major": 254,
                "minor": 0,
                "reads": 138634,
                "read_bytes": 9212642 * 512,
                "read_time": 125.759,
                "writes": 53305 - 9573,
                "write_bytes": 12811928 * 512,
                "write_time": 42.673,
                "in_flight": 0,
                "io_time": 37.948,
                "weighted_io_time": 172.822,
                "discards": 47445,
                "flushes": 9573,
                "flush_time": 0.361,
            }
        )
    }


def test_tells_partitions_from_devices() -> None:
    assert names("sda", "sda1", "sdaa", "nvme0n1", "nvme0n1p1", "mmcblk0", "mmcblk0p2") == [
        "disk:sda",
        "disk:sdaa",
        "disk:nvme0n1",
        "disk:mmcblk0",
    ]
    numbered = ["dm-1", "dm-10", "loop1", "loop10", "md1", "md12", "zram0", "nvme0n1", "nvme0n10", "nvme10n1"]
    assert names(*numbered) == [f"disk:{name}" for name in numbered]


def test_old_kernels_have_no_flushes() -> None:
    ((_, values),) = SAMPLER.parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", SOURCE)
    assert values["writes"] == 5
    assert "flushes" not in values and "discards" not in values
