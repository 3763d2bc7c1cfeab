import pytest

from pgherd.host.kernel_files import TICKS
from pgherd.metrics.procfs import CPU, PRESSURE, SWAP, SWAP_OURS, ZRAM, KernelIoSampler
from pgherd.metrics.sampler import ContainerView, SamplingView, ServerView, SwapView
from pgherd.node.protocol import SampleSource

# ---- CPU


(SOURCE,) = CPU.sources(SamplingView())


def test_reads_the_host(parsed, text) -> None:
    values = parsed("cpu", "proc-stat")["host"]
    first = [int(x) for x in text("proc-stat").splitlines()[0].split()[1:]]
    assert values["cpu.user"] == pytest.approx(first[0] / TICKS)
    assert values["cpu.steal"] == pytest.approx(first[7] / TICKS)
    assert values["context_switches"] > values["forks"] > 1000
    assert values["procs_running"] >= 1
    assert set(values) == {metric.name for metric in CPU.metrics}


def test_guests_are_counted_once() -> None:
    (reading,) = CPU.parse("cpu  1000 200 300 4000 50 6 7 80 400 150\ncpu0 1 1 1 1\n", SOURCE)
    values = reading[1]
    assert values["cpu.user"] == pytest.approx(1150 / TICKS)
    assert values["cpu.nice"] == pytest.approx(50 / TICKS)
    assert values.pop("cpu.online") == 1
    assert sum(values.values()) == pytest.approx((1000 + 200 + 300 + 4000 + 50 + 6 + 7 + 80) / TICKS)


def test_soft_interrupts_of_other_kinds_than_block_io(text) -> None:
    raw = "cpu 1 2 3 4\nsoftirq 1000 1 100 2 30 400 0 7 60 0 400\n"
    assert dict(CPU.parse(raw, SOURCE))["host"]["softirqs.other"] == 600
    total, *kinds = [int(x) for line in text("proc-stat").splitlines() if line.startswith("softirq") for x in line.split()[1:]]
    assert dict(CPU.parse(text("proc-stat"), SOURCE))["host"]["softirqs.other"] == total - kinds[4] > 0


def test_an_old_kernels_shorter_line_will_do() -> None:
    (reading,) = CPU.parse("cpu 1 2 3 4\n", SOURCE)
    assert reading[1]["cpu.idle"] == 4 / TICKS
    assert reading[1]["cpu.steal"] == 0


def test_of_a_host_whose_other_cpus_are_closed_only_the_usable_ones_count(text) -> None:
    """Docker's cpuset and taskset do not change /proc/stat, so that it also has the work of neighbours."""
    raw = "cpu 1000 0 0 400 0 0 0 70\ncpu0 100 0 0 300 0 0 0 1\ncpu1 10 0 0 90 0 0 0 2\ncpu2 890 0 0 10 0 0 0 67\n"
    (limited,) = CPU.sources(SamplingView(cpus=(0, 1)))
    values = dict(CPU.parse(raw, limited))["host"]
    assert values["cpu.online"] == 2
    assert [values[f"cpu.{kind}"] * TICKS for kind in ("user", "idle", "steal")] == pytest.approx([110, 390, 3])
    real = dict(CPU.parse(text("proc-stat"), CPU.sources(SamplingView(cpus=(0,)))[0]))["host"]
    assert real["cpu.online"] == 1 and real["cpu.idle"] < dict(CPU.parse(text("proc-stat"), SOURCE))["host"]["cpu.idle"]


# ---- memory


def test_reads_the_host_in_bytes(parsed) -> None:
    values = parsed("memory", "proc-meminfo")["host"]
    assert values["memory.total"] == 24684096 * 1024
    assert 0 < values["memory.free"] < values["memory.total"]
    assert values["memory.swap_total"] == 0
    assert len(values) == 14


# ---- paging


def test_reads_what_the_kernel_counts(parsed, text) -> None:
    values = parsed("vmstat", "proc-vmstat")["host"]
    lines = dict(line.split() for line in text("proc-vmstat").splitlines())
    assert values["vm.pgmajfault"] == int(lines["pgmajfault"]) > 0
    assert values["vm.refault_file"] == int(lines["workingset_refault_file"]) > 0
    assert values["vm.pswpin"] == values["vm.oom_kill"] == 0


# ---- pressure


def test_reads_seconds(parsed) -> None:
    assert parsed("pressure", "proc-pressure-cpu", "cpu") == {"host": {"psi.cpu.some": 239.865048}}
    assert parsed("pressure", "proc-pressure-io", "io") == {"host": {"psi.io.some": 24.820028, "psi.io.full": 21.241561}}
    group = parsed("pressure", "v2-memory.pressure", "memory", "container:a")
    assert group == {"container:a": {"psi.memory.some": 0, "psi.memory.full": 0}}


def test_reads_the_v2_group_only() -> None:
    view = SamplingView([ContainerView("a", {"v2": "/g/a", "cpu": "/c/a"}), ContainerView("b", {"cpu": "/c/b"})])
    found = PRESSURE.sources(view)
    assert [source.where for source in found if source.entity == "host"] == [f"/proc/pressure/{x}" for x in ("cpu", "memory", "io")]
    assert [source.where for source in found if source.entity == "container:a"] == [f"/g/a/{x}.pressure" for x in ("cpu", "memory", "io")]
    assert len(found) == 6


def test_reads_the_group_around_all_containers() -> None:
    found = PRESSURE.sources(SamplingView([ContainerView("a", {"v2": "/g/a"})], run_cgroup={"v2": "/g", "memory": "/m"}))
    assert [source.where for source in found if source.entity == "run-cgroup"] == [f"/g/{x}.pressure" for x in ("cpu", "memory", "io")]


def test_refuses_other_text() -> None:
    with pytest.raises(ValueError, match="no pressure lines"):
        list(PRESSURE.parse("cpu 1 2 3", SampleSource("pressure", "host", "file", "/x", tag="cpu")))


# ---- swap


# ---- swap areas


def test_tells_our_area_from_others(parsed) -> None:
    found = parsed("swap", "proc-swaps", "/dev/zram1", "swap")
    assert found == {
        "swap:swap": {"swap.size": 2097148 * 1024, "swap.used": 32 * 1024},
        SWAP_OURS: {"swap.size": 65532 * 1024, "swap.used": 8888 * 1024},
        "swap:pgherd-8cc2ab94.swap": {"swap.size": 8188 * 1024, "swap.used": 3192 * 1024},
    }
    assert SWAP_OURS in parsed("swap", "proc-swaps", "/srv/a b/pgherd-8cc2ab94.swap", "swap"), "a blank is escaped in the file"


def test_is_read_where_a_run_has_made_swap() -> None:
    assert SWAP.sources(SamplingView()) == []
    (source,) = SWAP.sources(SamplingView(swap=SwapView("/dev/zram3", 3)))
    assert (source.where, source.tag) == ("/proc/swaps", "/dev/zram3")


@pytest.mark.parametrize("raw", ["", "something else", "Filename Type Size Used Priority\n/dev/x partition"])
def test_swap_refuses_other_text(raw: str) -> None:
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


def test_the_time_of_all_names_is_one_counter() -> None:
    (source,) = KernelIoSampler().sources(SamplingView(servers=[ServerView("a/pg", "host=/s", 18, 10)]))
    assert KernelIoSampler().sources(SamplingView()) == [], "a guest's own threads belong to its container"
    assert (source.entity, source.kind) == ("platform:kernel-io", "kernel-threads")
    assert list(KernelIoSampler().parse("dio/vda 2\nkblockd 40\nodd name 8", source)) == [("platform:kernel-io", {"cpu.usage": 50 / TICKS})]
    assert list(KernelIoSampler().parse("", source)) == [("platform:kernel-io", {"cpu.usage": 0})]
    with pytest.raises(ValueError, match="is not a count"):
        list(KernelIoSampler().parse("no number", source))
