"""A server on two simulated devices, with configurable checkpoints and stalls."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.analysis.histogram import histogram
from pgherd.model.device_io import Checkpoint, DeviceIo, DeviceSeries, DeviceView, Pattern
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.io_profile.options import IoProfileOptions
from pgherd.studies.io_profile.study import STUDY

MB = 1e6
SECONDS = 60


@pytest.fixture(scope="module")
def compared():
    """Simulator of comparisons."""
    spec = importlib.util.spec_from_file_location("compare_conftest", Path(__file__).parents[2] / "study/comparison/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_conftest"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(compared):
    def options(*names, **extra):
        variants = [
            {"name": name, "study": "density", "options": compared.server_options(settings={"checkpoint_completion_target": name})}
            for name in names or ("db01",)
        ]
        return IoProfileOptions(variants=variants, baseline=variants[0]["name"], max_blocks=4, time_budget=9000, **extra)

    return options


def series(write, *, size=8192, queue=1.0):
    count = len(write)
    writes = [value / size for value in write]
    return DeviceSeries(
        at=[i + 1.0 for i in range(count)],
        seconds=[1.0] * count,
        reads=[0.0] * count,
        writes=writes,
        flushes=[100.0] * count,
        read_bytes=[0.0] * count,
        write_bytes=write,
        queue=[queue] * count,
        busy=[0.5] * count,
        read_await=[None] * count,
        write_await=[1.0] * count,
        flush_await=[0.2] * count,
    )


def result_of(trial, number=0, *, stalled=(), apart=True, traced=False, checkpoints=2, metrics=None):
    """A trial of 60 s: WAL at 2 MB/s, bursts of data at 20 MB/s in its checkpoints, nothing written in the ``stalled`` seconds."""
    wal = [0.0 if second in stalled else 2.0 * MB for second in range(SECONDS)]
    data = [20.0 * MB if second % 30 in (10, 11) else 0.2 * MB for second in range(SECONDS)]
    tps = [0.0 if second in stalled else 500.0 for second in range(SECONDS)]
    pattern = Pattern(requests=1000, bytes=8192000, window_share=0.1, adjacent_share=0.0, latency=histogram([500] * 900 + [5000] * 100))
    trace = {"all": pattern, "read": pattern} if traced else None
    devices = [DeviceView(number="8:0", name="sda", roles={"data": ["db01/pg"]}, series=series(data), trace=trace)]
    if apart:
        devices.append(DeviceView(number="8:16", name="sdb", roles={"wal": ["db01/pg"]}, series=series(wal, size=16384)))
    else:
        devices = [devices[0].model_copy(update={"roles": {"data": ["db01/pg"], "wal": ["db01/pg"]}})]
    completed = [
        Checkpoint(server="db01/pg", start=30.0 * i + 8, end=30.0 * i + 20, cause="time", buffers=2000) for i in range(checkpoints)
    ]
    latency = {"inside": histogram([4000] * 2000), "outside": histogram([2000] * 2000)}
    target = TargetResult(
        target="local/db01/pg/bench",
        driver="pgbench",
        transactions=sum(tps),
        throughput=sum(tps) / SECONDS,
        per_second=tps,
        first=0,
        last=60,
    )
    server_metrics = {"server:db01/pg": {"wal.bytes": 1.0 * MB, "checkpoint.buffers_written": 100.0, **(metrics or {})}}
    phase = PhaseResult(
        phase="steady",
        start=1000.0,
        end=1000.0 + SECONDS,
        overlap=1.0,
        targets=[target],
        metrics=server_metrics,
        io=DeviceIo(devices=devices, checkpoints=completed, latency=latency),
    )
    started = 100.0 * number
    return TrialResult(id=f"{number + 1:04d}", trial=trial, started=started, ended=started + 70, phases=[phase])


@pytest.fixture
def run():
    """Run the study to its end. ``of(trial, number)`` returns each trial's result."""

    def play(options, of=result_of):
        results = []
        while not (proposal := STUDY.propose(options, results)).stop:
            results += [of(trial, len(results) + i) for i, trial in enumerate(proposal.trials)]
            assert len(results) < 60
        return results

    return play


@pytest.fixture
def simulated():
    return result_of
