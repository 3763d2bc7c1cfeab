from __future__ import annotations

import pytest

from pgherd.analysis.host_measurement import HostRun
from pgherd.model.errors import UsageError
from pgherd.model.run import RunRecord
from pgherd.studies.disk.host_capacity import measure_host


def measured(options, results):
    record = RunRecord(run="r", study="disk", options=options.model_dump(mode="json"), started=0.0, pgherd="0")
    return measure_host(HostRun("--host-run r", "r", record, results))


def by_littles_law(results):
    """Set the mean latencies to those of a full device: I/Os in flight ÷ I/Os per second."""
    for result in results:
        for phase, loads in zip(result.phases, (phase.loads for phase in result.trial.phases), strict=True):
            for target in phase.targets:
                load = loads[target.target]
                for name in [name for name in target.values if name.endswith("_mean_ms")]:
                    target.values[name] = 1000 * load.clients * load.threads / target.throughput
    return results


def test_iops_at_one_ms_of_a_full_device(make, bank):
    """5,000 IOPS at 0.2 ms one at a time, and 20,000 at 1.6 ms with 32 in flight."""
    options = make()
    found = measured(options, by_littles_law(bank(options, iops=20_000, noise=0).all()))
    assert {name: one.value for name, one in found.capacity.items()} == pytest.approx(
        dict.fromkeys(("read_iops", "write_iops"), 5_000 + 15_000 * 0.8 / 1.4)
    )
    assert found.capacity["read_iops"].source == "run r" and not found.bounds and not found.defaults
    assert found.notes == ("Reads and writes of run r were measured one after the other, so a host may not reach both at once",)


def test_a_device_below_one_ms_has_its_largest_iops_with_an_interval(make, bank):
    options = make(tests=("random-read", "qd1-read"))
    found = measured(options, bank(options, noise=0.01).all())
    read = found.bounds["read_iops"]
    assert (
        read.value == pytest.approx(40_000, rel=0.05) and read.low < read.value and read.high is None and read.n == 2 * options.repeats + 1
    )
    assert set(found.bounds) == {"read_iops"} and not found.capacity
    assert found.notes == (
        "Run r has no write_iops at a latency of at most 1 ms",
        "Run r never had a latency of 1 ms, so a host may have more than the measured read_iops",
    )


def test_volumes_count_together(make, bank):
    options = make(2)
    found = measured(options, bank(options, together=0.75, noise=0).all())
    assert found.bounds["write_iops"].value == pytest.approx(60_000), "and not the sum of each alone"


@pytest.mark.parametrize(
    "changes, host, message",
    [
        ({"hosts": ("a", "b")}, {}, "--host-run r: run r measured several hosts at once; give a disk run of one host"),
        ({"count": 2, "concurrent": False}, {}, "measured its volumes only one by one; repeat it with --concurrent"),
        ({}, {"cached": 0.5}, "has no read_iops, because a cache of the host served them and no write_iops, because"),
        ({}, {"latency": 2.0}, "has no read_iops at a latency of at most 1 ms and no write_iops at a latency of at most 1 ms; give"),
        ({"tests": ("sequential-read",)}, {}, "has no read_iops at a latency of at most 1 ms and no write_iops"),
    ],
)
def test_a_run_without_iops_is_refused(make, bank, changes, host, message):
    options = make(**changes)
    with pytest.raises(UsageError, match=message):
        measured(options, bank(options, **host).all())
