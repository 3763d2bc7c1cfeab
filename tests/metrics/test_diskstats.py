import pytest

from pgherd.metrics.diskstats import NO_NUMBER, SAMPLER, device_series, guest_series, nvme_paths
from pgherd.metrics.sampler import SamplingView
from pgherd.metrics.spool import SpoolReading

# ---- sampler


(SOURCE,) = SAMPLER.sources(SamplingView())


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
                "io_time_weighted": 172.822,
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


def test_a_namespace_of_several_paths_has_their_sum() -> None:
    """As on the cloud: only the hidden paths of an NVMe namespace count, and they have no device number."""
    path, zero = "10 0 80 4 20 0 160 8 0 3 4 0 0 0 0 0 0", " ".join(["0"] * 17)
    raw = f"0 0 nvme0c0n1 {path}\n0 0 nvme0c1n1 {path}\n259 1 nvme0n1 {zero}\n259 2 nvme0n1p1 {zero}\n"
    ((entity, values),) = SAMPLER.parse(raw, SOURCE)
    assert entity == "disk:nvme0n1" and (values["major"], values["minor"]) == (259, 1)
    assert (values["reads"], values["writes"], values["write_bytes"]) == (20, 40, 2 * 160 * 512)
    counting = f"259 3 nvme0c0n1 {path}\n259 1 nvme0n1 {path}\n"
    ((_, values),) = SAMPLER.parse(counting, SOURCE)
    assert values["reads"] == 10, "newer kernels count both"


def test_requests_of_a_path_are_those_of_its_namespace() -> None:
    zero = " ".join(["0"] * 17)
    rows = [f"259 3 nvme0c0n1 {zero}", f"259 4 nvme0c1n1 {zero}", f"259 1 nvme0n1 {zero}", f"259 2 nvme0n1p1 {zero}", f"8 0 sda {zero}"]
    assert list(nvme_paths("\n".join(rows))) == [("259:3", "259:1"), ("259:4", "259:1")]
    assert list(nvme_paths(f"0 0 nvme0c0n1 {zero}\n259 1 nvme0n1 {zero}\n")) == [(NO_NUMBER, "259:1")]
    assert list(nvme_paths(f"259 3 nvme0c0n1 {zero}\n")) == [] == list(nvme_paths(""))


# ---- series between samples


def sample(t: float, **values: float) -> SpoolReading:
    zero = dict.fromkeys(
        ("reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "in_flight", "io_time", "io_time_weighted"), 0.0
    )
    return t, "diskstats", "disk:vdb", {"major": 254.0, "minor": 16.0, **zero, **values}


def test_rates_are_those_between_two_samples() -> None:
    readings = [
        sample(10.0),
        sample(11.0, writes=100, write_bytes=819200, write_time=0.5, io_time_weighted=0.5, io_time=0.25),
        sample(13.0, writes=100, write_bytes=819200, write_time=0.5, io_time_weighted=0.5, io_time=0.25),
    ]
    (series,) = device_series(readings, 10.0, 20.0).values()
    assert (series.at, series.seconds) == ([1.0, 3.0], [1.0, 2.0])
    assert (series.writes, series.write_bytes, series.queue, series.busy) == ([100, 0], [819200, 0], [0.5, 0], [0.25, 0])
    assert series.write_await == [pytest.approx(5.0), None] and series.read_await == [None, None]


def test_flushes_and_their_time_are_not_the_writes() -> None:
    readings = [sample(0.0, flushes=0, flush_time=0), sample(1.0, writes=50, write_time=0.3, flushes=100, flush_time=0.2)]
    (series,) = device_series(readings, 0.0, 5.0).values()
    assert (series.write_await, series.flush_await) == ([pytest.approx(2.0)], [pytest.approx(2.0)])
    assert series.flushes == [100]


def test_durations_continue_after_they_have_wrapped() -> None:
    readings = [
        sample(0.0, write_time=4294967.0, io_time_weighted=4294967.2),
        sample(1.0, writes=100, write_time=0.204, io_time_weighted=0.404),
    ]
    (series,) = device_series(readings, 0.0, 5.0).values()
    assert (series.write_await, series.queue) == ([pytest.approx(5.0)], [pytest.approx(0.5)])


def test_only_intervals_of_the_window_and_none_that_are_too_short() -> None:
    readings = [sample(t) for t in (0.0, 1.0, 2.0, 2.1, 3.0)]
    assert device_series(readings, 0.5, 2.5)["254:16"].at == [1.5]
    assert device_series([(1.0, "cpu", "host", {"cpu.user": 1.0})], 0.0, 2.0) == {}


def test_both_views_of_a_guests_drive_have_their_series():
    """The hypervisor reports no queue."""
    inside = [(t, "diskstats", "guest-disk:db01/vdb", {"major": 254.0, "minor": 16.0, **values}) for t, _, _, values in (
        sample(10.0), sample(11.0, writes=10, io_time_weighted=0.5)
    )]  # fmt: skip
    zero = dict.fromkeys(("reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "flushes", "flush_time"), 0.0)
    below = [
        (10.0, "qemu_blockstats", "guest-drive:db01/data", zero),
        (11.0, "qemu_blockstats", "guest-drive:db01/data", {**zero, "writes": 8.0}),
    ]
    result = guest_series([*inside, *below, sample(10.5)], 9.0, 12.0)
    assert set(result) == {"guest-disk:db01/vdb", "guest-drive:db01/data"}
    assert (result["guest-disk:db01/vdb"].writes, result["guest-disk:db01/vdb"].queue) == ([10.0], [0.5])
    assert (result["guest-drive:db01/data"].writes, result["guest-drive:db01/data"].queue) == ([8.0], [None])
    assert device_series([*inside, *below], 9.0, 12.0) == {}
