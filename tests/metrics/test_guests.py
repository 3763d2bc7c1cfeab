import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changes import read_changed
from pgherd.metrics.diskstats import SAMPLER as DISKSTATS
from pgherd.metrics.guests import BALLOON_MANAGER, EMULATED, GUEST_BALLOON, GUEST_MACHINE, QEMU_BLOCKSTATS, QEMU_PROCESS, SAME_PAGE_MERGING
from pgherd.metrics.sampler import GuestView, SamplingView, metric
from pgherd.node.protocol import SampleSource
from pgherd.runtimes.vm.qemu import GuestFiles, GuestSpec, arguments
from pgherd.study.guests import EMULATED_METRIC

# ---- process of the hypervisor


# ---- memory and CPU


MB = 2**20
CAPTURED = Path(__file__).parent.parent / "fixtures" / "qemu"


def read(name: str, tag: str = "") -> dict[str, float]:
    ((entity, values),) = QEMU_PROCESS.parse((CAPTURED / name).read_text(), SampleSource("qemu_process", "guest:a", "file", "/x", tag=tag))
    assert entity == "guest:a"
    return values


def test_three_files_of_each_guest_one_seldom() -> None:
    status, smaps, stat = QEMU_PROCESS.sources(SamplingView(guests=[GuestView("a", 7, 256 * MB)]))
    assert (status.where, status.every, status.entity) == ("/proc/7/status", 1, "guest:a")
    assert (smaps.where, smaps.tag) == ("/proc/7/smaps", str(256 * MB)) and smaps.every > 10
    assert (stat.where, stat.every) == ("/proc/7/stat", 1)
    assert QEMU_PROCESS.sources(SamplingView()) == []


def test_reads_a_real_process() -> None:
    status, smaps = read("status"), read("smaps", str(256 * MB))
    assert set(status) == {"qemu.anon", "qemu.shared", "qemu.file", "qemu.swapped"}
    held = status["qemu.anon"] + status["qemu.shared"]
    # Both were read of an idle guest, so the sums of the mappings match the process.
    assert smaps["guest.resident"] + smaps["qemu.overhead"] == pytest.approx(held, abs=2 * MB)
    assert 0 < smaps["guest.resident"] <= 256 * MB and smaps["qemu.overhead"] > 5 * MB


def test_code_that_may_be_executed_is_not_the_guests_memory() -> None:
    lines = ["100000-10100000 rwxp 00000000 00:00 0 ", "Rss: 100 kB", "20000000-30000000 rw-p 00000000 00:00 0 ", "Rss: 300 kB"]
    lines += ["40000000-80000000 rw-p 00000000 00:00 0 ", "Rss: 4 kB", "90000000-90001000 r--p 0 08:01 7   /usr/bin/qemu", "Rss: 50 kB"]
    ((_, values),) = QEMU_PROCESS.parse("\n".join(lines), SampleSource("qemu_process", "guest:a", "file", "/x", tag=str(256 * MB)))
    assert values == {"guest.resident": 300 * 1024, "qemu.overhead": 104 * 1024}


@pytest.mark.parametrize(
    ("tag", "raw"), [("", "nothing"), ("", ""), ("1000", ""), ("1000", "a b c"), (str(2**40), "0-1000 rw-p 0\nRss: 4 kB")]
)
def test_refuses_other_text(tag, raw) -> None:
    with pytest.raises(ValueError):
        list(QEMU_PROCESS.parse(raw, SampleSource("qemu_process", "guest:a", "file", "/x", tag=tag)))


def test_reserved_huge_pages_are_the_guests_memory_too() -> None:
    """Lines as the kernel writes them of a memory file on huge pages: they are in no Rss."""
    status = "RssAnon:\t  100 kB\nRssFile:\t 7 kB\nRssShmem:\t  4 kB\nVmSwap:\t 0 kB\nHugetlbPages:\t  262144 kB\n"
    ((_, values),) = QEMU_PROCESS.parse(status, SampleSource("qemu_process", "guest:a", "file", "/x"))
    assert values["qemu.shared"] == 256 * MB + 4 * 1024 and values["qemu.anon"] == 100 * 1024
    smaps = "20000000-30000000 rw-s 00000000 00:0f 7   /memfd:memory-backend-memfd (deleted)\nRss: 0 kB\nShared_Hugetlb: 0 kB\n"
    smaps += "Private_Hugetlb: 262144 kB\n40000000-40100000 rw-p 00000000 00:00 0 \nRss: 60 kB\nPrivate_Hugetlb: 0 kB\n"
    ((_, split),) = QEMU_PROCESS.parse(smaps, SampleSource("qemu_process", "guest:a", "file", "/x", tag=str(256 * MB)))
    assert split == {"guest.resident": 256 * MB, "qemu.overhead": 60 * 1024}


def test_cpu_of_vcpus_is_told_from_the_hypervisors_own() -> None:
    """Fields 14, 15 and 43 of proc(5), in ticks of 10 ms; the name of a process may be as odd as it likes."""
    fields = ["7", "(qemu (x) y)", "S"] + [str(number) for number in range(4, 53)]
    fields[13], fields[14], fields[42] = "250", "150", "300"
    ((_, values),) = QEMU_PROCESS.parse(" ".join(fields), SampleSource("qemu_process", "guest:a", "file", "/x", tag="cpu"))
    assert values == {"qemu.cpu": 4.0, "qemu.cpu_guest": 3.0}
    with open("/proc/self/stat") as file:
        ((_, ours),) = QEMU_PROCESS.parse(file.read(), SampleSource("qemu_process", "guest:a", "file", "/x", tag="cpu"))
    assert ours["qemu.cpu"] > 0 and ours["qemu.cpu_guest"] == 0
    with pytest.raises(ValueError, match="/proc/PID/stat"):
        list(QEMU_PROCESS.parse("7 (qemu) S 1 2", SampleSource("qemu_process", "guest:a", "file", "/x", tag="cpu")))


# ---- emulation


@pytest.mark.parametrize(("accelerator", "found"), [("tcg", 1.0), ("kvm", 0.0)])
def test_the_accelerator_is_told_by_the_command_line(accelerator, found):
    argv = arguments("qemu-system-x86_64", GuestSpec("db01", "/k", "/i", "/r", accelerator=accelerator), GuestFiles("/m", "/a", "/c", "/l"))
    (source,) = GUEST_MACHINE.sources(SamplingView(guests=[GuestView("db01", 4711, 2**29)]))
    assert source.where == "/proc/4711/cmdline"
    assert list(GUEST_MACHINE.parse("\0".join([*argv, ""]), source)) == [("guest:db01", {EMULATED_METRIC: found})]
    assert EMULATED == EMULATED_METRIC, "what studies look at"


def test_another_command_line_is_an_error():
    (source,) = GUEST_MACHINE.sources(SamplingView(guests=[GuestView("db01", 4711, 2**29)]))
    with pytest.raises(ValueError, match="is no command line of QEMU"):
        list(GUEST_MACHINE.parse("sleep\x0060\0", source))


# ---- same-page merging


def test_reads_the_hosts_counts_and_each_guests_where_some_memory_may_be_merged() -> None:
    assert SAME_PAGE_MERGING.sources(SamplingView(guests=[GuestView("a", 7, 256 * MB)])) == []
    guests = [GuestView("a", 7, 256 * MB, merging=True), GuestView("b", 8, 256 * MB), GuestView("c", 9, 256 * MB, merging=True)]
    found = {(source.entity, source.where): source.tag for source in SAME_PAGE_MERGING.sources(SamplingView(guests=guests))}
    assert found == {
        ("host", "/sys/kernel/mm/ksm/pages_shared"): "ksm.shared",
        ("host", "/sys/kernel/mm/ksm/pages_sharing"): "ksm.saved",
        ("host", "/sys/kernel/mm/ksm/pages_unshared"): "ksm.unshared",
        ("host", "/sys/kernel/mm/ksm/full_scans"): "ksm.full_scans",
        ("guest:a", "/proc/7/ksm_merging_pages"): "guest.ksm_merged",
        ("guest:c", "/proc/9/ksm_merging_pages"): "guest.ksm_merged",
    }


def test_pages_become_bytes_and_rounds_stay() -> None:
    def read(raw: str, tag: str) -> dict[str, float]:
        ((_, values),) = SAME_PAGE_MERGING.parse(raw, SampleSource(SAME_PAGE_MERGING.name, "host", "file", "/x", tag=tag))
        return values

    # As a kernel with two merged guests gave them.
    assert read("22033\n", "ksm.shared") == {"ksm.shared": 22033 * 4096}
    assert read("37913\n", "ksm.saved") == {"ksm.saved": 37913 * 4096}
    assert read("23\n", "ksm.full_scans") == {"ksm.full_scans": 23}


@pytest.mark.parametrize(("raw", "tag"), [("", "ksm.shared"), ("many", "guest.ksm_merged"), ("1", "ksm.other"), ("1", "")])
def test_refuses_other_text_of_same_page_merging(raw: str, tag: str) -> None:
    with pytest.raises(ValueError):
        list(SAME_PAGE_MERGING.parse(raw, SampleSource(SAME_PAGE_MERGING.name, "host", "file", "/x", tag=tag)))


# ---- balloons


# ---- guests


SOURCE = SampleSource("guest_balloon", "guest:a", "file", "a")
WRITTEN = {"memory": 1000, "minimum": 200, "actual": 700, "target": 650, "working_set": 300, "at": 12.5, "last_update": 11}
STATS = {"stat-free-memory": 5, "stat-available-memory": 6, "stat-swap-in": 7, "stat-disk-caches": -1, "stat-htlb-pgalloc": 0}


def test_reads_what_was_seen_and_set() -> None:
    ((entity, values),) = GUEST_BALLOON.parse(json.dumps(WRITTEN | {"stats": STATS}), SOURCE)
    assert entity == "guest:a"
    assert values == {
        "guest.memory_configured": 1000,
        "guest.minimum": 200,
        "guest.memory_balloon_actual": 700,
        "guest.target": 650,
        "guest.working_set": 300,
        "guest.ballooned": 300,
        "guest.free": 5,
        "guest.available": 6,
        "guest.swap_in": 7,
        "guest.statistics_age": 1.5,
    }


def test_before_the_guest_has_told_anything() -> None:
    ((_, values),) = GUEST_BALLOON.parse(json.dumps(WRITTEN | {"stats": {}, "last_update": 0}), SOURCE)
    assert "guest.statistics_age" not in values and "guest.free" not in values and values["guest.ballooned"] == 300


def test_no_node_reads_it() -> None:
    assert GUEST_BALLOON.sources(SamplingView()) == []


@pytest.mark.parametrize("raw", ["", "[]", "{}", "7", json.dumps(WRITTEN), json.dumps(WRITTEN | {"stats": 3}), '{"stats": {}}'])
def test_balloons_refuse_other_text(raw) -> None:
    with pytest.raises(ValueError):
        list(GUEST_BALLOON.parse(raw, SOURCE))


@given(st.data())
def test_an_odd_line_is_a_reading_or_a_value_error(data) -> None:
    line = WRITTEN | {"stats": STATS}
    for entity, values in read_changed(lambda document: list(GUEST_BALLOON.parse(json.dumps(document), SOURCE)), line, data) or ():
        assert entity == "guest:a" and values and all(map(math.isfinite, values.values()))


# ---- balloon manager


MANAGER = SampleSource("balloon_manager", "platform:balloon-manager", "qmp", "")


def test_the_managers_own_cpu_is_a_part_of_the_platform() -> None:
    assert list(BALLOON_MANAGER.parse('{"cpu": 1.25}', MANAGER)) == [("platform:balloon-manager", {"cpu.usage": 1.25})]
    assert BALLOON_MANAGER.sources(SamplingView(guests=[GuestView("a", 7, 2**20)])) == []


@pytest.mark.parametrize("raw", ["", "{}", "[]", '{"cpu": null}', '{"cpu": "much"}'])
def test_refuses_other_text_of_balloon_manager(raw: str) -> None:
    with pytest.raises(ValueError):
        list(BALLOON_MANAGER.parse(raw, MANAGER))


# ---- drives


DRIVES_SOURCE = SampleSource("qemu_blockstats", "guest:a", "file", "a")
CAPTURED_DRIVES = Path(__file__).parent.parent / "fixtures" / "qemu" / "query-blockstats.json"


def read_drives() -> dict[str, dict[str, float]]:
    return dict(QEMU_BLOCKSTATS.parse(CAPTURED_DRIVES.read_text(), DRIVES_SOURCE))


def test_every_drive_of_a_real_guest_has_a_name_that_says_which() -> None:
    assert set(read_drives()) == {f"guest-drive:a/{name}" for name in ("data", "wal", "scsi", "nvme", "cd0", "ide")}


def test_reads_what_a_real_guest_did() -> None:
    raw = {one["device"] or one["qdev"]: one["stats"] for one in json.loads(CAPTURED_DRIVES.read_text())}
    data = read_drives()["guest-drive:a/data"]
    assert data["writes"] == raw["data"]["wr_operations"] > 0
    assert data["write_bytes"] == raw["data"]["wr_bytes"] >= 8 * 2**20
    assert data["flushes"] == raw["data"]["flush_operations"] > 0
    assert data["write_time"] == pytest.approx((raw["data"]["wr_total_time_ns"] + raw["data"]["flush_total_time_ns"]) / 1e9)
    assert read_drives()["guest-drive:a/cd0"]["writes"] == 0


def test_both_views_of_a_real_guest_agree() -> None:
    """vda is the drive 'data', vdb 'wal' (virtio): what its kernel counted is what QEMU counted, but for what the firmware read."""
    inside = dict(
        DISKSTATS.parse((CAPTURED_DRIVES.parent / "guest-diskstats").read_text(), SampleSource("diskstats", "disk", "file", "/x"))
    )
    for within, below in (("vda", "data"), ("vdb", "wal")):
        seen, counted = inside[f"disk:{within}"], read_drives()[f"guest-drive:a/{below}"]
        assert [counted[name] for name in ("writes", "write_bytes", "flushes", "read_bytes")] == [
            seen[name] for name in ("writes", "write_bytes", "flushes", "read_bytes")
        ] or counted["read_bytes"] - seen["read_bytes"] == 512
        assert counted["write_time"] <= seen["write_time"], "the guest waits for the hypervisor too"


def test_the_names_mean_what_they_mean_inside_the_guest() -> None:
    shared = {one.name for one in QEMU_BLOCKSTATS.metrics} & {one.name for one in DISKSTATS.metrics}
    assert shared == {"reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "discards", "flushes", "flush_time"}
    assert metric("write_time").unit == "s"


def test_a_node_without_a_device_is_left_out_and_an_old_qemu_understood() -> None:
    stats = {"wr_total_time_ns": 2_000_000_000, "rd_operations": 1}
    drives = [
        {"node-name": "backing", "stats": stats},
        {"qdev": "/machine/peripheral/wal/virtio-backend", "stats": stats, "device": ""},
        {"qdev": "/machine/peripheral-anon/device[3]", "node-name": "n3", "stats": stats},
    ]
    found = dict(QEMU_BLOCKSTATS.parse(json.dumps(drives), DRIVES_SOURCE))
    assert list(found) == ["guest-drive:a/wal", "guest-drive:a/n3"]
    assert found["guest-drive:a/wal"] == {"reads": 1, "write_time": 2.0}
    assert QEMU_BLOCKSTATS.sources(SamplingView()) == []


@pytest.mark.parametrize(
    "raw", ["", "{}", "7", "[7]", '[{"device": "a"}]', '[{"device": "a", "stats": {}}]', '[{"device": "a", "stats": []}]']
)
def test_drives_refuse_other_text(raw) -> None:
    with pytest.raises(ValueError):
        list(QEMU_BLOCKSTATS.parse(raw, DRIVES_SOURCE))


@given(st.data())
def test_odd_statistics_are_a_reading_of_drives_or_a_value_error(data) -> None:
    answer = json.loads(CAPTURED_DRIVES.read_text())
    for entity, values in (
        read_changed(lambda document: list(QEMU_BLOCKSTATS.parse(json.dumps(document), DRIVES_SOURCE)), answer, data) or ()
    ):
        assert entity.startswith("guest-drive:a/") and all(map(math.isfinite, values.values()))
