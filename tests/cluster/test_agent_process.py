"""The agent's orders; the process itself is run by tests/it/test_cluster_engine.py and tests/cluster/test_start.py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

from pgherd.cluster import agent_process, certificates, cluster_file, dask_client, start, status
from pgherd.cluster.agent_process import AgentConfig
from pgherd.cluster.ssh import Ssh


def test_orders_are_read(tmp_path):
    (tmp_path / "agent.json").write_text(json.dumps({"scheduler": "tls://10.0.0.1:4", "host": "a"}))
    assert AgentConfig.read(tmp_path) == AgentConfig("tls://10.0.0.1:4", "a", None, {})


def test_either_drops_the_rest_but_keeps_what_was_given():
    async def scenario() -> None:
        slow = asyncio.ensure_future(asyncio.sleep(30))
        await agent_process._wait_for_first(slow, asyncio.sleep(0))
        assert not slow.cancelled() and not slow.done()
        slow.cancel()

    asyncio.run(scenario())


def test_an_agent_joins_is_asked_to_end_and_leaves_no_scratch(own_directories, tmp_path, monkeypatch):
    cluster = start._start_new(start.StartRequest("default", ("a",), listen="127.0.0.1"), lambda sentence: None)
    try:
        for name in (certificates.AUTHORITY, certificates.MEMBER):
            certificates.write_private(tmp_path / name, (cluster_file.directory("default") / name).read_text())
        (tmp_path / "agent.json").write_text(json.dumps({"scheduler": cluster.address, "host": "a", "labels": {"disk": "nvme"}}))
        agent = cluster_file.AgentRecord(name="a", pid=1, start=1, directory=str(tmp_path / "nothing"), python="/bin/true")
        cluster_file.save(cluster.model_copy(update={"hosts": (agent,)}))
        monkeypatch.setattr(Ssh, "run", lambda self, host, orders, payload=b"", timeout=0.0: {"how": "gone already"})
        program = [sys.executable, "-I", "-m", "pgherd.cluster.agent_process", str(tmp_path)]
        process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
        with dask_client.connect("default", hold=False) as connection:
            deadline = time.monotonic() + 60
            while not connection.joined() and time.monotonic() < deadline:
                time.sleep(0.1)
            assert connection.joined() == {"a": "127.0.0.1"}
        assert status.read_status("default").hosts[0].labels == {"disk": "nvme"}
        os.kill(process.pid, signal.SIGTERM)
        _, message = process.communicate(timeout=30)
        assert process.returncode == 0 and "joined tls://127.0.0.1" in message and not (tmp_path / "scratch").exists()
    finally:
        process.kill()
        start.stop("default", lambda sentence: None)
