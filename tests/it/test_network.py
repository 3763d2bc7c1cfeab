"""`pgherd network` through real iperf3: between namespaces with a known limit, to a server that is there, and killed in the middle."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import namespaces
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

SHORT = ("--seconds", "2s", "--ramp", "1s", "--no-report")

pytestmark = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


@pytest.fixture
def able() -> None:
    try:
        namespaces.insist(LocalNode())
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
        deadline = time.monotonic() + 20
        while f":{port:04X} 00000000:0000 0A" not in Path("/proc/net/tcp").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def test_a_link_of_known_bandwidth_is_bound_by_it(elsewhere, able):
    ended = elsewhere("network", "--namespaces", "--limit", "100M", "--streams", "1,2", "--repeats", "1", *SHORT, "--json")
    if ended.code == 3 and "sch_tbf" in ended.err:
        pytest.skip("this kernel does not limit a link (sch_tbf)")
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine
    document = json.loads(ended.out)
    assert "bound by bandwidth" in document["answer"] and document["grade"] in ("B", "C")
    for name in ("best", "one_stream"):
        # 100 Mbit/s on the wire; headers take 5 %, and the burst and the socket's buffer add a little in so short a time.
        assert document["findings"][name]["value"] == pytest.approx(0.097, rel=0.15)
    assert document["findings"]["rtt_loaded"]["value"] > document["findings"]["rtt_idle"]["value"], "a queue fills before a limit"
    assert all(result["trial"]["deployment"]["links"][0]["kind"] == "namespaces" for result in elsewhere.trials())
    script = elsewhere("show", "last", "1", "--commands")
    assert script.code == 0 and "tbf rate 100000000bit" in script.out


def test_to_a_server_that_is_there(elsewhere, server):
    ended = elsewhere("network", "--to", f"127.0.0.1:{server}", "--streams", "2", "--repeats", "1", *SHORT, "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert document["findings"]["one_stream"]["value"] > 0 and document["findings"]["rtt_idle"]["unit"] == "ms"
    assert len(document["trials"]) >= 3, "a tainted one is measured again"
    raw = list(elsewhere.run.glob("trials/*/drivers/*/*/stdout"))
    assert len(raw) >= 3 and all("intervals" in json.loads(file.read_text()) for file in raw)


def test_killed_in_the_middle_nothing_is_left_and_resume_goes_on(elsewhere, able):
    process = elsewhere.start("network", "--namespaces", "--streams", "1", "--repeats", "1", *SHORT)
    elsewhere.wait_until(lambda: list(elsewhere.runs.glob("*/trials/0002.partial/spool.jsonl")))
    process.kill()
    elsewhere.end(process)
    assert elsewhere("clean").code == 0
    elsewhere.nothing_left()
    ended = elsewhere("resume", "last", "--no-report", "--json")
    assert ended.code in (0, 1), ended  # 1: tainted throughout, as on a busy machine; what is tainted is measured again
    trials = json.loads(ended.out)["trials"]
    assert {trial["point"]["streams"] for trial in trials} == {0, 1} and trials[0]["id"] == "0001"
