from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host import cpus
from reports import NUMA_NODES, NumaNodes

CAPTURED = Path(__file__).parents[1] / "fixtures/host/kvm-guest"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("5\n", (5,)), ("", ()), ("0,2-2", (0, 2))],
)
def test_parse_list(text: str, expected: tuple[int, ...]) -> None:
    assert cpus.parse_list(text) == expected


def test_parse_list_refuses_other_text() -> None:
    with pytest.raises(ValueError):
        cpus.parse_list("0-x")


@given(st.lists(st.integers(0, 500), unique=True).map(sorted))
def test_parse_list_reads_what_a_list_says(numbers: list[int]) -> None:
    assert cpus.parse_list(",".join(map(str, numbers))) == tuple(numbers)


def test_cpuinfo_of_a_guest() -> None:
    assert cpus.parse_cpuinfo((CAPTURED / "proc/cpuinfo").read_text()) == cpus.CpuInfo("AMD EPYC", True)


def test_cpuinfo_of_bare_metal() -> None:
    text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\nflags\t\t: fpu vme vmx ht\n"
    assert cpus.parse_cpuinfo(text) == cpus.CpuInfo("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", False)


def test_cpuinfo_of_arm_says_nothing_of_a_hypervisor() -> None:
    text = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    assert cpus.parse_cpuinfo(text) == cpus.CpuInfo("", None)


def test_cpuinfo_of_power() -> None:
    assert (
        cpus.parse_cpuinfo("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.000000MHz\n").model
        == "POWER9, altivec supported"
    )


def test_cpus_that_could_be_plugged_in_are_not_usable(tmp_path: Path, fake) -> None:
    status = {"/proc/self/status": "Cpus_allowed_list:\t0-127\n"}
    assert cpus.allowed(fake.FakeNode(tmp_path / "a", status | {"/sys/devices/system/cpu/online": "0-3,8\n"})) == (0, 1, 2, 3, 8)
    assert len(cpus.allowed(fake.FakeNode(tmp_path / "b", status))) == 128, "nothing shows which are online"


def test_topology_with_two_threads_per_core(tmp_path: Path, fake) -> None:
    lists = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    node = fake.FakeNode(tmp_path, {f"/sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list": t for c, t in lists.items()})
    threads = cpus.siblings(node, range(4))
    assert set(threads.values()) == {(0, 2), (1, 3)}
    assert cpus.simultaneous_multithreading(node, threads) is True


def test_numa_nodes_of_cpus(tmp_path: Path, fake) -> None:
    location = "/sys/devices/system/node"
    node = fake.FakeNode(
        tmp_path, {f"{location}/online": "0,2\n", f"{location}/node0/cpulist": "0-1,4\n", f"{location}/node2/cpulist": "2-3\n"}
    )
    assert cpus.numa_nodes(node, (0, 2, 4, 9)) == {0: 0, 2: 2, 4: 0}
    assert cpus.numa_nodes(fake.FakeNode(tmp_path / "none"), (0, 1)) == {}


@pytest.mark.parametrize("row", NUMA_NODES, ids=lambda row: row.report)
def test_only_nodes_of_usable_cpus_count(row: NumaNodes, tmp_path: Path, fake) -> None:
    lists = {f"/sys/devices/system/node/node{number}/cpulist": f"{text}\n" for number, text in enumerate(row.cpus)}
    node = fake.FakeNode(tmp_path, lists | {"/sys/devices/system/node/online": f"0-{len(row.cpus) - 1}\n"})
    assert len(set(cpus.numa_nodes(node, row.usable).values())) == row.right


def test_cpus_that_share_least_are_chosen() -> None:
    threads = {cpu: (cpu - cpu % 2, cpu - cpu % 2 + 1) for cpu in range(6)}
    assert cpus.least_shared(range(6), 3, {}, threads) == ((0, 0), (0, 2, 4)), "one thread of each core"
    assert cpus.least_shared(range(6), 4, {}, threads) == ((0, 1), (0, 2, 4, 1))
    assert cpus.least_shared(range(6), 2, {0: 1, 2: 1}, threads) == ((0, 1), (4, 1)), "on the sibling of a busy CPU, rather than on it"
    assert cpus.least_shared(range(2), 5, {0: 2, 1: 1}, {}) == ((3, 0), (1, 0)), "there are no more"


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1),
    st.integers(1, 40),
    st.dictionaries(st.integers(0, 30), st.integers(0, 3)),
    st.integers(1, 4),
)
def test_no_cpu_is_chosen_while_one_is_less_busy(given_cpus: list[int], count: int, taken: dict[int, int], width: int) -> None:
    threads = {cpu: tuple(range(cpu - cpu % width, cpu - cpu % width + width)) for cpu in given_cpus}
    (busy, _), chosen = cpus.least_shared(given_cpus, count, taken, threads)
    assert len(set(chosen)) == len(chosen) == min(count, len(given_cpus)) and set(chosen) <= set(given_cpus)
    assert busy == sum(sorted(taken.get(cpu, 0) for cpu in given_cpus)[:count])


def test_smt_is_unknown_without_topology(tmp_path: Path, fake) -> None:
    assert cpus.simultaneous_multithreading(fake.FakeNode(tmp_path), {}) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, cpus.CpuFrequency(None, None)),
        ({"intel_pstate/no_turbo": "0\n", "cpu0/cpufreq/scaling_governor": "performance\n"}, cpus.CpuFrequency("performance", True)),
        ({"intel_pstate/no_turbo": "1\n"}, cpus.CpuFrequency(None, False)),
        (
            {"cpufreq/boost": "1\n", "cpu0/cpufreq/scaling_governor": "schedutil", "cpu1/cpufreq/scaling_governor": "powersave"},
            cpus.CpuFrequency("powersave/schedutil", True),
        ),
    ],
)
def test_clock(tmp_path: Path, fake, files: dict[str, str], expected: cpus.CpuFrequency) -> None:
    node = fake.FakeNode(tmp_path, {f"/sys/devices/system/cpu/{name}": text for name, text in files.items()})
    assert cpus.cpu_frequency(node, (0, 1)) == expected


def test_steal_is_a_share_of_all_time() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice: guest time is part of user time already
    assert cpus.steal_share("cpu  100 0 100 700 0 0 0 100 50 0\ncpu0 1 1\n") == pytest.approx(0.1)
    assert cpus.steal_share("intr 5") is None


def test_notes_say_what_a_core_is() -> None:
    note = cpus.core_note(virtualisation="KVM", smt=False, threads=1, numa_nodes=1, boost=None, steal=0.02, cores=1.5, logical=4)
    assert "virtual CPU under KVM" in note
    assert "2 % since boot" in note
    assert "1.5 of 4" in note
    assert "physical core:" not in note
    assert "NUMA" not in note

    metal = cpus.core_note(virtualisation=None, smt=True, threads=2, numa_nodes=2, boost=True, steal=None, cores=8, logical=8)
    assert "2 hardware threads" in metal
    assert "2 NUMA nodes" in metal
    assert "boosts" in metal
    assert "virtual" not in metal
