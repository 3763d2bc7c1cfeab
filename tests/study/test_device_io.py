import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.analysis.histogram import histogram
from pgherd.model.analysis import Analysis
from pgherd.model.deployment import Deployment
from pgherd.model.device_io import DeviceIo, DeviceView, Pattern, TraceCost
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.disk.analyse import _bandwidth as disk_bandwidth
from pgherd.studies.disk.measurements import HostDiskResult
from pgherd.studies.io_profile.trial_profile import profile_of
from pgherd.study.device_io import series_numbers, with_device_io


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("storage_conftest", Path(__file__).parents[1] / "studies/io_profile/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["storage_conftest"] = module
    spec.loader.exec_module(module)
    return module


EMPTY = Analysis(answer="x", grade="A")


def trial(io, point=None, number=1):
    target = TargetResult(target="local/a/pg/bench", driver="pgbench", transactions=100.0, throughput=10.0, first=0, last=10)
    phase = PhaseResult(phase="steady", start=0.0, end=10.0, overlap=1.0, targets=[target], io=io)
    request = Trial(point=point or {"databases": 1}, deployment=Deployment(hosts=()), phases=())
    return TrialResult(id=f"{number:04d}", trial=request, started=0.0, ended=10.0, phases=[phase])


def view(made, **extra):
    series = made.series([8192.0 * 100] * 8 + [8192.0 * 900] * 2)
    return DeviceView(number="8:0", name="sda", roles={"data": ["a/pg"]}, series=series, **extra)


def test_a_device_is_a_row_and_of_one_point_findings_too(simulation):
    device_io = with_device_io(EMPTY, [trial(DeviceIo(devices=[view(simulation)])), trial(DeviceIo(devices=[view(simulation)]), number=2)])
    (row,) = device_io.tables["io"]
    assert (row["device"], row["roles"], row["writes"].value, row["writes"].n) == ("sda", "data", pytest.approx(260.0), 2)
    assert row["peak_to_mean"].value == pytest.approx(900 / 260) and row["write_request_size"].value == pytest.approx(8.0)
    assert device_io.findings["io_writes:sda"].value == pytest.approx(260.0)
    assert "sequential_share" not in row, "what nobody traced has no column"
    assert "without flushes" in row["writes"].method


def test_a_rate_in_mb_per_second_has_the_unit_of_fio_in_every_table(simulation):
    """25,000,000 bytes per second are 25 MB/s in 'io', in 'disk' and of PostgreSQL, and not 23.8."""
    device = DeviceView(number="8:0", name="sda", roles={"data": ["a/pg"]}, series=simulation.series([25e6] * 10))
    traced = trial(DeviceIo(devices=[device]))
    (row,) = with_device_io(EMPTY, [traced]).tables["io"]
    assert row["write_rate"].value == pytest.approx(25)
    assert disk_bandwidth(HostDiskResult(iops=3000, bytes=25e6, latency=None, busy=None)) == pytest.approx(25)
    (phase,) = traced.phases
    seen = traced.model_copy(update={"phases": [phase.model_copy(update={"metrics": {"server:a/pg": {"wal.bytes": 25e6}}})]})
    profile = profile_of(seen)
    assert profile.wal_rate_postgres == pytest.approx(25) and profile.wal_per_tx == pytest.approx(25e6 / 1024 / 10)


def test_several_points_are_rows_without_findings(simulation):
    trials = [trial(DeviceIo(devices=[view(simulation)]), {"databases": n}, n) for n in (1, 2)]
    device_io = with_device_io(EMPTY, trials)
    assert [row["point"] for row in device_io.tables["io"]] == ["databases 1", "databases 2"] and not device_io.findings


def test_what_was_traced_has_a_label_and_its_rule(simulation):
    pattern = Pattern(requests=1000, bytes=1, window_share=0.95, adjacent_share=0.4, latency={5: 2000}, gaps=histogram([200] * 900))
    io = DeviceIo(
        devices=[view(simulation, trace={"all": pattern, "write": pattern})], trace=TraceCost(cpu=0.02, events=90, lost=10, incomplete=3)
    )
    device_io = with_device_io(EMPTY, [trial(io)])
    (row,) = device_io.tables["io"]
    assert (
        row["label"] == "sequential"
        and row["sequential_share"].value == pytest.approx(95)
        and row["adjacent_share"].value == pytest.approx(40)
    )
    assert "io_sizes" not in device_io.tables, "of these no sizes are known"
    assert "64 KiB" in row["sequential_share"].method and row["inter_request_gap_p50"].value == pytest.approx(0.2, rel=1 / 32)
    (cost,) = [warning for warning in device_io.warnings if "tracing used" in warning]
    assert "0.020 cores" in cost and "10 events were lost (10 %)" in cost and "3 requests lack their start or end" in cost


def test_sizes_of_traced_requests_are_a_table(simulation):
    pattern = Pattern(requests=100, bytes=1, sizes={8192: 70, 16384: 30})
    io = DeviceIo(devices=[view(simulation, trace={"all": pattern, "write": pattern})], trace=TraceCost(cpu=None, events=1, lost=0))
    device_io = with_device_io(EMPTY, [trial(io)])
    assert [(row["roles"], row["request_bytes"], row["share"].value) for row in device_io.tables["io_sizes"]] == [
        ("data", 8192, pytest.approx(70)),
        ("data", 16384, pytest.approx(30)),
    ]


def test_roles_on_one_device_and_devices_below_are_said(simulation):
    both = view(simulation).model_copy(update={"roles": {"data": ["a/pg"], "wal": ["a/pg"]}, "below": ["8:32"], "name": "loop0"})
    below = view(simulation).model_copy(update={"roles": {}, "number": "8:32", "name": "sdc"})
    device_io = with_device_io(EMPTY, [trial(DeviceIo(devices=[both, below], missing=["the tablespace of a/pg lies on no block device"]))])
    assert [row["roles"] for row in device_io.tables["io"]] == ["data, WAL", "below loop0"]
    assert any("data and WAL share the device" in warning for warning in device_io.warnings) and any(
        "tablespace" in warning for warning in device_io.warnings
    )


def test_where_no_device_is_seen_that_is_said():
    device_io = with_device_io(EMPTY, [trial(DeviceIo(missing=["the data of a/pg lies on no block device"]))])
    assert device_io == EMPTY.model_copy(update={"warnings": ["I/O view: the data of a/pg lies on no block device"]})


def test_trials_without_a_view_add_nothing():
    assert with_device_io(EMPTY, [trial(None)]) == EMPTY


def test_reads_per_transaction(simulation):
    device = view(simulation)
    device = device.model_copy(update={"series": device.series.model_copy(update={"reads": [50.0] * 10})})
    (row,) = with_device_io(EMPTY, [trial(DeviceIo(devices=[device]))]).tables["io"]
    assert row["reads_per_tx"].value == pytest.approx(5.0)
    assert series_numbers(device.series)["reads"] == pytest.approx(50.0)


def test_reads_are_held_against_the_transactions_of_the_servers_on_the_device_alone(simulation):
    """Two servers, each on a device of its own, one with ten times the transactions of the other."""
    series = view(simulation).series.model_copy(update={"reads": [50.0] * 10})
    item = view(simulation).model_copy(update={"series": series})
    other = item.model_copy(update={"number": "8:16", "name": "sdb", "roles": {"data": ["b/pg"]}})
    result = trial(DeviceIo(devices=[item, other]))
    (phase,) = result.phases
    busy = phase.targets[0].model_copy(update={"target": "local/b/pg/bench", "transactions": 1000.0})
    result = result.model_copy(update={"phases": [phase.model_copy(update={"targets": [*phase.targets, busy]})]})
    rows = {row["device"]: row["reads_per_tx"].value for row in with_device_io(EMPTY, [result]).tables["io"]}
    assert rows == {"sda": pytest.approx(5.0), "sdb": pytest.approx(0.5)}


def test_a_loaded_volume_has_its_devices_and_no_transactions(simulation):
    device = view(simulation).model_copy(update={"roles": {"volume": ["h1/pg"]}})
    result = trial(DeviceIo(devices=[device]), {"test": "random-read", "volume": "pg"})
    (phase,) = result.phases
    target = phase.targets[0].model_copy(update={"target": "h1/pg", "driver": "fio"})
    (row,) = with_device_io(EMPTY, [result.model_copy(update={"phases": [phase.model_copy(update={"targets": [target]})]})]).tables["io"]
    assert (row["point"], row["roles"]) == ("test random-read, volume pg", "volume h1/pg") and "reads_per_tx" not in row


def test_bursts_of_data_stand_beside_the_wal_of_the_same_servers(simulation):
    """Data at 900 blocks a second in bursts, and WAL at 90 on another device: 10 times as much."""
    data = view(simulation)
    wal = data.model_copy(
        update={"number": "8:16", "name": "sdb", "roles": {"wal": ["a/pg"]}, "series": simulation.series([8192.0 * 90] * 10)}
    )
    rows = {row["device"]: row for row in with_device_io(EMPTY, [trial(DeviceIo(devices=[data, wal]))]).tables["io"]}
    assert (
        rows["sda"]["data_burst_to_wal_ratio"].value == pytest.approx(10)
        and "WAL on another device" in rows["sda"]["data_burst_to_wal_ratio"].method
    )
    assert rows["sdb"]["data_burst_to_wal_ratio"].value is None, "the WAL is not held against itself"


@pytest.mark.parametrize("roles", [{"wal": ["b/pg"]}, {"data": ["c/pg"]}])
def test_anothers_wal_is_not_held_against_data(simulation, roles):
    other = view(simulation).model_copy(update={"number": "8:16", "name": "sdb", "roles": roles})
    rows = with_device_io(EMPTY, [trial(DeviceIo(devices=[view(simulation), other]))]).tables["io"]
    assert all("data_burst_to_wal_ratio" not in row for row in rows)


@pytest.mark.parametrize(
    ("above", "roles"),
    [
        ({"tablespace": ["a/pg"]}, {"wal": ["a/pg"]}),
        ({"data": ["b/pg"]}, {"wal": ["a/pg"]}),
        ({"volume": ["h1/pg"]}, {"wal": ["a/pg"]}),
        ({}, {"wal": ["a/pg"], "data": ["b/pg"]}),
    ],
)
def test_a_wals_device_that_sees_more_than_wal_is_held_against_nothing(simulation, above, roles):
    """By its own roles, or by those of a loop device on a file there."""
    data = view(simulation)
    wal = data.model_copy(update={"number": "8:16", "name": "sdb", "roles": roles})
    loop = data.model_copy(update={"number": "7:0", "name": "loop0", "roles": above, "below": ["8:16"]})
    rows = with_device_io(EMPTY, [trial(DeviceIo(devices=[data, wal, loop]))]).tables["io"]
    assert all("data_burst_to_wal_ratio" not in row for row in rows)
    plain = loop.model_copy(update={"roles": {"wal": ["b/pg"]}})
    only = with_device_io(EMPTY, [trial(DeviceIo(devices=[data, wal.model_copy(update={"roles": {"wal": ["a/pg"]}}), plain]))]).tables["io"]
    assert next(row for row in only if row["device"] == "sda")["data_burst_to_wal_ratio"].value == pytest.approx(900 / 260), (
        "it sees WAL alone"
    )


def test_bursts_beside_a_wal_on_the_same_device_say_nothing(simulation):
    both = view(simulation).model_copy(update={"roles": {"data": ["a/pg"], "wal": ["a/pg"]}})
    (row,) = with_device_io(EMPTY, [trial(DeviceIo(devices=[both]))]).tables["io"]
    assert "data_burst_to_wal_ratio" not in row
