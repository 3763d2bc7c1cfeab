from typing import Any

import pytest

from pgherd.model.device_io import DeviceIo, DeviceView
from pgherd.model.result import PhaseResult
from pgherd.study.kernel_io import kernel_io


def phase(*servers_on: str, threads: float | None = 0.1, **host: float) -> PhaseResult:
    def disk(minor: float, rate: float) -> dict[str, float]:
        return {"major": 8.0, "minor": minor, "reads": 0.0, "writes": rate / 2, "flushes": rate / 2}

    metrics: dict[str, Any] = {
        "host": {"cpu.online": 2.0, "cpu.irq": 0.0, "cpu.softirq": 0.04} | host,
        "container:a": {"cpu.usage": 0.5},
        "disk:sda": disk(0, 600.0),
        "disk:sdb": disk(16, 200.0),
        "disk:dm-0": disk(99, 5000.0),
    }
    if threads is not None:
        metrics["platform:kernel-io"] = {"cpu.usage": threads}
    io = DeviceIo(devices=[DeviceView(number=number, name=number, below=["8:0"] if number == "253:0" else []) for number in servers_on])
    return PhaseResult(phase="steady", start=0, end=9, overlap=1, targets=[], metrics=metrics, io=io if servers_on else None)


def test_threads_count_by_the_requests_of_the_servers_devices() -> None:
    assert kernel_io(phase("8:0", "8:16")) == pytest.approx(0.1)
    assert kernel_io(phase("8:0")) == pytest.approx(0.1 * 600 / 800)
    assert kernel_io(phase("253:0")) == pytest.approx(0.1 * 600 / 800), "a logical volume's requests are those of the disk below it"
    assert kernel_io(phase()) == pytest.approx(0.1), "nothing is known of the servers' devices"
    assert kernel_io(phase("8:32")) == 0, "their devices were idle, and another program's disk was not"
    assert kernel_io(phase("8:0", threads=None)) is None


def test_interrupts_count_by_the_requests_among_all_events() -> None:
    # Counted by the tick, a quarter of the interrupts hit a container, whose time includes them.
    assert kernel_io(phase("8:0", **{"softirqs.other": 400.0})) == pytest.approx(0.075 + 0.04 * 0.75 * 600 / 1200)
    exact = phase("8:0", **{"softirqs.other": 400.0, "cpu.irq": 0.02})
    assert kernel_io(exact) == pytest.approx(0.075 + 0.06 * 600 / 1200)
    # Before and without load the same interrupts have other causes.
    assert kernel_io(phase("8:32", **{"softirqs.other": 400.0, "cpu.irq": 0.02})) == 0


def test_several_hosts() -> None:
    one = phase("8:0")
    metrics = {entity.replace("disk:", "disk:h1/"): values for entity, values in one.metrics.items()}
    io = DeviceIo(devices=[DeviceView(number="h1/8:0", name="h1/sda")])
    assert kernel_io(one.model_copy(update={"metrics": metrics, "io": io})) == pytest.approx(0.075)
