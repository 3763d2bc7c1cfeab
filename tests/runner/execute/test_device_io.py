import os
from pathlib import Path

import pytest

from pgherd.host import storage
from pgherd.host.storage import Device
from pgherd.metrics.sampler import GuestDrive, GuestView, SamplingView, ServerView
from pgherd.model.errors import CapabilityError
from pgherd.model.result import PhaseResult
from pgherd.node.local import LocalNode
from pgherd.runner.execute import device_io
from pgherd.runner.execute.device_io import DeviceLayout, layout, require_traceable


@pytest.fixture
def server(tmp_path, monkeypatch):
    """This process as a postmaster in a data directory whose WAL lies elsewhere, on made-up devices."""
    data, wal = tmp_path / "data", tmp_path / "wal"
    for path in (data / "base", data / "pg_tblspc", wal, tmp_path / "space"):
        path.mkdir(parents=True)
    (data / "pg_wal").symlink_to(wal)
    (data / "pg_tblspc" / "16384").symlink_to(tmp_path / "space")
    monkeypatch.chdir(data)
    names = {"base": "sda", "wal": "sdb", "space": "sda"}
    devices = {"sda": Device("8:0", "sda"), "sdb": Device("8:16", "sdb", below=("8:32",)), "sdc": Device("8:32", "sdc")}

    def devices_of(node, paths):
        return {path: devices[names[Path(os.path.realpath(path)).name]] for path in paths}

    monkeypatch.setattr(storage, "devices_of", devices_of)
    monkeypatch.setattr(storage, "device", lambda node, number: next(d for d in devices.values() if d.number == number))
    return ServerView("db01/pg", "host=/x", 15, os.getpid())


def test_where_the_files_of_a_server_lie(server):
    found = layout(LocalNode(), [server])
    roles = {device.name: roles for device, roles in found.devices.values()}
    assert roles == {"sda": {"data": ["db01/pg"], "tablespace": ["db01/pg"]}, "sdb": {"wal": ["db01/pg"]}, "sdc": {}}
    assert found.logs == {"db01/pg": f"{os.getcwd()}.log"} and found.missing == []


def test_where_a_loaded_volume_lies(server, tmp_path, monkeypatch):
    (volume := tmp_path / "base").mkdir()
    found = layout(LocalNode(), [], volumes={"data": str(volume)})
    assert {device.name: roles for device, roles in found.devices.values()} == {"sda": {"volume": ["data"]}} and found.logs == {}
    monkeypatch.setattr(storage, "devices_of", lambda node, paths: {})
    assert layout(LocalNode(), [], volumes={"data": str(volume)}).missing[0].startswith("volume data is on no visible block device")


def test_somebody_elses_server_is_said_to_be_missing():
    found = layout(LocalNode(), [ServerView("db01/pg", "host=x", 15, 0)])
    assert found.devices == {} and "external server" in found.missing[0]


def test_a_phase_gets_its_view(server, tmp_path):
    node = LocalNode()
    log = Path(f"{os.getcwd()}.log")
    log.write_text(
        "1970-01-01 00:16:45.000 UTC [1] LOG:  checkpoint starting: time\n"
        "1970-01-01 00:16:47.000 UTC [1] LOG:  checkpoint complete: wrote 5 buffers (0.0%); write=1.9 s, sync=0.1 s, total=2.0 s;\n"
    )
    watching = device_io.begin(node, SamplingView(servers=[server]), tmp_path)
    zero = dict.fromkeys(
        ("reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "in_flight", "io_time", "io_time_weighted"), 0.0
    )
    readings = [
        (1000.0 + i, "diskstats", "disk:sda", {"major": 8.0, "minor": 0.0, **zero, "writes": 10.0 * i, "write_bytes": 81920.0 * i})
        for i in range(11)
    ]
    watching.stop()
    phase = PhaseResult(phase="steady", start=1000.0, end=1010.0, overlap=1.0, targets=[])
    (seen,) = watching.onto([phase], readings)
    assert [(view.name, view.series.writes[:2]) for view in seen.io.devices] == [("sda", [10.0, 10.0]), ("sdb", []), ("sdc", [])]
    assert [(one.start, one.end, one.buffers) for one in seen.io.checkpoints] == [(5.0, 7.0, 5)]
    assert seen.io.trace is None and all(view.trace is None for view in seen.io.devices)


def test_a_trace_that_does_not_begin_is_said_and_fails_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise CapabilityError("perf did not begin to trace: no")

    monkeypatch.setattr(device_io.block_trace, "BlockTrace", refuse)
    watching = device_io.DeviceIoRecorder(
        LocalNode(), SamplingView(trace=True), tmp_path, known=DeviceLayout({"8:0": (Device("8:0", "sda"), {})})
    )
    phase = PhaseResult(phase="steady", start=0.0, end=1.0, overlap=1.0, targets=[])
    (seen,) = watching.onto([phase], [])
    assert "no trace: perf did not begin" in seen.io.missing[0]


TRACED = """\
5.000000000: block:block_rq_issue: 259,3 WS 8192 () 8 + 16 0x2,0,4 [fio]
5.100000000: block:block_rq_complete: 259,3 WS () 8 + 16 0x2,0,4 [0]
"""


@pytest.mark.parametrize(
    ("number", "asked", "seen", "missing"),
    [
        ("259 3", ["259:1", "259:3"], {"write", "all"}, []),
        ("0 0", ["259:1"], set(), ["no trace of NVMe namespaces with several paths"]),
    ],
)
def test_requests_are_traced_by_the_paths_of_a_namespace(tmp_path, monkeypatch, number, asked, seen, missing):
    class Tracing:
        clock, cpu = 0.0, 0.01

        def __init__(self, node, devices, directory):
            self.devices = devices

        def stop(self):
            """It has ended."""

        def lines(self, text):
            text.write_text(TRACED)
            return iter(TRACED.splitlines())

    class Multipath(LocalNode):
        def read(self, path):
            zero = " ".join(["0"] * 17)
            return f"{number} nvme0c0n1 {zero}\n259 1 nvme0n1 {zero}\n259 9 nvme1c0n1 {zero}\n259 8 nvme1n1 {zero}\n".encode()

    monkeypatch.setattr(device_io.block_trace, "BlockTrace", Tracing)
    known = DeviceLayout({"259:1": (Device("259:1", "nvme0n1"), {})})
    watching = device_io.DeviceIoRecorder(Multipath(), SamplingView(trace=True), tmp_path, known=known)
    assert watching._tracing.devices == asked
    watching.stop()
    (found,) = watching.onto([PhaseResult(phase="steady", start=0.0, end=10.0, overlap=1.0, targets=[])], [])
    (view,) = found.io.devices
    assert set(view.trace) == seen
    assert [text.partition(":")[0] for text in found.io.missing] == missing


def test_nothing_is_tried_where_nobody_wants_a_trace():
    assert require_traceable(LocalNode(), False) == []


def test_a_guests_drives_are_seen_from_both_sides(tmp_path, monkeypatch):
    """In the guest, at its hypervisor, and on the device that holds the image."""
    monkeypatch.setattr(storage, "devices_of", lambda node, paths: dict.fromkeys(paths, Device("8:0", "sda")) if paths else {})
    drives = (
        GuestDrive("data", "vdb", "/images/data.raw", "data", "db01/pg"),
        GuestDrive("temp", "", "/images/temp.raw", "temp", "db01/pg"),
    )
    view = SamplingView(servers=[ServerView("db01/pg", "host=x", 15, 0)], guests=[GuestView("db01", 4711, 2**29, drives)])
    watching = device_io.begin(LocalNode(), view, tmp_path)
    watching.stop()
    counted = dict.fromkeys(("reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time"), 0.0)
    readings = [(1000.0 + i, "qemu_blockstats", "guest-drive:db01/data", {**counted, "writes": 5.0 * i}) for i in range(3)]
    (seen,) = watching.onto([PhaseResult(phase="steady", start=1000.0, end=1010.0, overlap=1.0, targets=[])], readings)
    assert [(one.name, one.roles, one.below, one.series.writes) for one in seen.io.devices] == [
        ("sda", {}, [], []),
        ("db01/vdb", {"data": ["db01/pg"]}, ["guest-drive:db01/data"], []),
        ("db01/data (QEMU)", {}, ["8:0"], [5.0, 5.0]),
        ("db01/temp (QEMU)", {}, ["8:0"], []),
    ]
    assert seen.io.missing == []
