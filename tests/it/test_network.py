"""`pgherd network` through real iperf3: between namespaces with a known limit, to a server that is there, and killed in the middle."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import netns
from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

SHORT = ("--duration", "2s", "--warmup", "1s", "--no-report")
ONCE = (*SHORT, "--time-budget", "1s")
"""What is tainted, as on a busy machine, is not measured again."""

ONE_WAY = 0.01
"""Seconds that the long wire holds every packet up."""
ENDS = ("10.204.0.1", "10.204.0.2")
WINDOW = 16 * 1024
"""Bytes of a stream's socket buffers; the kernel doubles what it is asked for."""
_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x0001 | 0x1000

pytestmark = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


@pytest.fixture
def able() -> None:
    try:
        netns.require_root(LocalNode())
    except CapabilityError as error:
        pytest.skip(str(error))


@pytest.fixture
def server() -> Iterator[int]:
    """The port of somebody's iperf3 server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(["iperf3", "--server", "--bind", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        _listens("/proc/net/tcp", port)
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(table: str, port: int) -> None:
    """Wait until somebody listens at the port, by this table of the kernel's."""
    deadline = time.monotonic() + 20
    while f":{port:04X} 00000000:0000 0A" not in Path(table).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def long_wire(able: None, tmp_path: Path) -> Iterator[netns.Namespaces]:
    """Two namespaces joined by tunnels whose packets a thread of ours passes on, each ``ONE_WAY`` after it came: a far host, without
    the kernel's own means (sch_netem), which many kernels lack."""
    node = LocalNode()
    journal = Journal.open(node, tmp_path / "state", "test")
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        created = netns.make(node, journal)
        stack.callback(created.close)
        try:
            files = [os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for _ in ENDS]
        except OSError as error:
            pytest.skip(f"no tunnel can be made here: {error}")
        for end, (file, address) in enumerate(zip(files, ENDS, strict=True)):
            stack.callback(os.close, file)
            name = f"pgherd-wire{end}"
            fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
            subprocess.run(["ip", "link", "set", name, "netns", str(created.holders[end].pid)], check=True)
            inside = (*created.inside(end), "ip")
            subprocess.run([*inside, "address", "add", address, "peer", ENDS[1 - end], "dev", name], check=True)
            subprocess.run([*inside, "link", "set", name, "up"], check=True)
        ended = threading.Event()
        passing = threading.Thread(target=_pass_on, args=(files, ended), daemon=True)
        passing.start()
        stack.callback(passing.join)
        stack.callback(ended.set)
        yield created


def _pass_on(files: list[int], ended: threading.Event) -> None:
    """Every packet of one end to the other, when it is due."""
    waiting: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    while not ended.is_set():
        due = [queue[0][0] for queue in waiting if queue]
        readable, _, _ = select.select(files, [], [], max(0.0, min([*due, time.monotonic() + 0.1]) - time.monotonic()))
        for file in readable:
            waiting[1 - files.index(file)].append((time.monotonic() + ONE_WAY, os.read(file, 65536)))
        for file, queue in zip(files, waiting, strict=True):
            while queue and queue[0][0] <= time.monotonic():
                os.write(file, queue.popleft()[1])


def test_over_a_long_wire_a_stream_is_bound_by_latency(elsewhere, long_wire):
    """Known truth: no stream has more under way than its buffers hold, and nothing comes back sooner than both ways take."""
    with subprocess.Popen([*long_wire.inside(1), "iperf3", "--server", "--bind", ENDS[1]], stdout=subprocess.DEVNULL) as server:
        try:
            _listens(f"/proc/{server.pid}/net/tcp", 5201)
            arguments = ("--to", ENDS[1], "--window", str(WINDOW), "--streams", "1,2", "--repeats", "1", *ONCE, "--json")
            ended = elsewhere("network", *arguments, through=long_wire.prefix)
        finally:
            server.kill()
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine
    document = json.loads(ended.out)
    findings = document["findings"]
    assert "one stream is limited by latency, not by the link's bandwidth" in document["answer"]
    assert findings["single_stream_throughput"]["note"].startswith("limited by latency")
    assert findings["rtt_idle"]["value"] >= 2000 * ONE_WAY
    assert 0 < findings["single_stream_throughput"]["value"] <= 8e-9 * 2 * WINDOW / (2 * ONE_WAY)
    assert findings["peak_throughput"]["value"] > 1.5 * findings["single_stream_throughput"]["value"]
    assert findings["single_stream_mb_per_s"]["value"] == pytest.approx(125 * findings["single_stream_throughput"]["value"])
    assert any("base backups and copies gain from several streams" in next_step for next_step in document["next_steps"])
    assert any("throughput still grew at 2 streams" in warning for warning in document["warnings"])


def test_a_link_of_known_bandwidth_is_bound_by_it(elsewhere, able):
    ended = elsewhere("network", "--netns", "--netns-rate", "100M", "--streams", "1,2", "--repeats", "1", *ONCE, "--json")
    if ended.code == 3 and "sch_tbf" in ended.err:
        pytest.skip("this kernel does not limit a link (sch_tbf)")
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine
    document = json.loads(ended.out)
    assert "limited by bandwidth" in document["answer"] and document["grade"] in ("B", "C")
    for name in ("peak_throughput", "single_stream_throughput"):
        # 100 Mbit/s on the wire; headers take 5 %, and the burst and the socket's buffer add a little in so short a time.
        assert document["findings"][name]["value"] == pytest.approx(0.097, rel=0.15)
    assert document["findings"]["rtt_loaded"]["value"] > document["findings"]["rtt_idle"]["value"], "a queue fills before a limit"
    assert all(result["trial"]["deployment"]["links"][0]["kind"] == "namespaces" for result in elsewhere.trials())
    script = elsewhere("show", "last", "1", "--repro-script")
    assert script.code == 0 and "tbf rate 100000000bit" in script.out
    elsewhere.ended_well(ended)


def test_to_a_server_that_is_there(elsewhere, server):
    ended = elsewhere("network", "--to", f"127.0.0.1:{server}", "--streams", "2", "--repeats", "1", *SHORT, "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert document["findings"]["single_stream_throughput"]["value"] > 0 and document["findings"]["rtt_idle"]["unit"] == "ms"
    assert len(document["trials"]) >= 3, "a tainted one is measured again"
    raw = list(elsewhere.run.glob("trials/*/drivers/*/*/stdout"))
    assert len(raw) >= 3 and all("intervals" in json.loads(file.read_text()) for file in raw)


def test_killed_in_the_middle_nothing_is_left_and_resume_goes_on(elsewhere, able):
    process = elsewhere.start("network", "--netns", "--streams", "1", "--repeats", "1", *SHORT)
    elsewhere.wait_until(lambda: list(elsewhere.runs.glob("*/trials/0002.partial/spool.jsonl")))
    process.kill()
    elsewhere.end(process)
    assert elsewhere("clean").code == 0
    elsewhere.nothing_left()
    ended = elsewhere("resume", "last", "--no-report", "--json")
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine; what is tainted is measured again
    trials = json.loads(ended.out)["trials"]
    assert {trial["point"]["streams"] for trial in trials} == {0, 1} and trials[0]["id"] == "0001"
