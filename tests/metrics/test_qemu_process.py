from pathlib import Path

import pytest

from pgherd.metrics.qemu_process import SAMPLER
from pgherd.metrics.sampler import GuestView, View
from pgherd.node.protocol import Source

MB = 2**20
CAPTURED = Path(__file__).parent.parent / "fixtures" / "qemu"


def read(name: str, tag: str = "") -> dict[str, float]:
    ((entity, values),) = SAMPLER.parse((CAPTURED / name).read_text(), Source("qemu_process", "guest:a", "file", "/x", tag=tag))
    assert entity == "guest:a"
    return values


def test_three_files_of_each_guest_one_seldom() -> None:
    status, smaps, stat = SAMPLER.sources(View(guests=[GuestView("a", 7, 256 * MB)]))
    assert (status.where, status.every, status.entity) == ("/proc/7/status", 1, "guest:a")
    assert (smaps.where, smaps.tag) == ("/proc/7/smaps", str(256 * MB)) and smaps.every > 10
    assert (stat.where, stat.every) == ("/proc/7/stat", 1)
    assert SAMPLER.sources(View()) == []


def test_reads_a_real_process() -> None:
    status, smaps = read("status"), read("smaps", str(256 * MB))
    assert set(status) == {"qemu.anon", "qemu.shared", "qemu.file", "qemu.swapped"}
    held = status["qemu.anon"] + status["qemu.shared"]
    # Both were read of a guest that did nothing, so that what the mappings say is what the process has.
    assert smaps["guest.resident"] + smaps["qemu.overhead"] == pytest.approx(held, abs=2 * MB)
    assert 0 < smaps["guest.resident"] <= 256 * MB and smaps["qemu.overhead"] > 5 * MB


def test_code_that_may_be_executed_is_not_the_guests_memory() -> None:
    lines = ["100000-10100000 rwxp 00000000 00:00 0 ", "Rss: 100 kB", "20000000-30000000 rw-p 00000000 00:00 0 ", "Rss: 300 kB"]
    lines += ["40000000-80000000 rw-p 00000000 00:00 0 ", "Rss: 4 kB", "90000000-90001000 r--p 0 08:01 7   /usr/bin/qemu", "Rss: 50 kB"]
    ((_, values),) = SAMPLER.parse("\n".join(lines), Source("qemu_process", "guest:a", "file", "/x", tag=str(256 * MB)))
    assert values == {"guest.resident": 300 * 1024, "qemu.overhead": 104 * 1024}


@pytest.mark.parametrize(
    ("tag", "raw"), [("", "nothing"), ("", ""), ("1000", ""), ("1000", "a b c"), (str(2**40), "0-1000 rw-p 0\nRss: 4 kB")]
)
def test_refuses_other_text(tag, raw) -> None:
    with pytest.raises(ValueError):
        list(SAMPLER.parse(raw, Source("qemu_process", "guest:a", "file", "/x", tag=tag)))


def test_reserved_huge_pages_are_the_guests_memory_too() -> None:
    """Lines as the kernel writes them of a memory file on huge pages: they are in no Rss."""
    status = "RssAnon:\t  100 kB\nRssFile:\t 7 kB\nRssShmem:\t  4 kB\nVmSwap:\t 0 kB\nHugetlbPages:\t  262144 kB\n"
    ((_, values),) = SAMPLER.parse(status, Source("qemu_process", "guest:a", "file", "/x"))
    assert values["qemu.shared"] == 256 * MB + 4 * 1024 and values["qemu.anon"] == 100 * 1024
    smaps = "20000000-30000000 rw-s 00000000 00:0f 7   /memfd:memory-backend-memfd (deleted)\nRss: 0 kB\nShared_Hugetlb: 0 kB\n"
    smaps += "Private_Hugetlb: 262144 kB\n40000000-40100000 rw-p 00000000 00:00 0 \nRss: 60 kB\nPrivate_Hugetlb: 0 kB\n"
    ((_, split),) = SAMPLER.parse(smaps, Source("qemu_process", "guest:a", "file", "/x", tag=str(256 * MB)))
    assert split == {"guest.resident": 256 * MB, "qemu.overhead": 60 * 1024}


def test_cpu_of_vcpus_is_told_from_the_hypervisors_own() -> None:
    """Fields 14, 15 and 43 of proc(5), in ticks of 10 ms; the name of a process may be as odd as it likes."""
    fields = ["7", "(qemu (x) y)", "S"] + [str(number) for number in range(4, 53)]
    fields[13], fields[14], fields[42] = "250", "150", "300"
    ((_, values),) = SAMPLER.parse(" ".join(fields), Source("qemu_process", "guest:a", "file", "/x", tag="cpu"))
    assert values == {"qemu.cpu": 4.0, "qemu.cpu_guest": 3.0}
    with open("/proc/self/stat") as file:
        ((_, ours),) = SAMPLER.parse(file.read(), Source("qemu_process", "guest:a", "file", "/x", tag="cpu"))
    assert ours["qemu.cpu"] > 0 and ours["qemu.cpu_guest"] == 0
    with pytest.raises(ValueError, match="/proc/PID/stat"):
        list(SAMPLER.parse("7 (qemu) S 1 2", Source("qemu_process", "guest:a", "file", "/x", tag="cpu")))
