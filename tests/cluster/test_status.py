"""How a cluster stands."""

from __future__ import annotations

import json

from pgherd.cluster import status
from pgherd.cluster.interfaces import HostClockOffset, HostLost

ESCAPE = "\x1b]0;title\x07"


def test_a_cluster_that_is_there(loopback):
    seen = status.read_status(loopback)
    assert [(host.name, host.address, host.state) for host in seen.hosts] == [("left", "127.0.0.2", "idle"), ("right", "127.0.0.3", "idle")]
    assert seen.gone == [] and seen.differences == () and seen.address == loopback
    document = seen.document()
    json.dumps(document)
    assert document["hosts"][0]["offset"]["uncertainty"] > 0 and document["hosts"][0]["memory"] > 1e6
    assert "±" in seen.hosts[0].clock and "MB" in seen.hosts[0].agent_usage.replace("MiB", "MB") and seen.hosts[0].postgres


def test_one_that_is_gone_says_why():
    gone = status._state("a", "10.0.0.1", HostLost("a", "its agent has ended"), None, {})
    assert gone.state == "gone: its agent has ended" and gone.clock == "unknown" and gone.agent_usage == "" and gone.postgres == ""
    seen = {"driver": "head, pid 3", "memory": 1 << 20, "cpu": 1.0}
    there = status._state("a", "10.0.0.1", seen, HostClockOffset(0.0015, 0.0002, 1, 0.0004, 9), {})
    assert there.state == "used by head, pid 3" and there.clock == "+1.50 ± 0.20 ms"


def test_texts_of_hosts_do_not_control_the_terminal():
    told = {"driver": f"x{ESCAPE}", "memory": 1, "cpu": 0.5, "labels": {f"k{ESCAPE}": f"v{ESCAPE}"}}
    there = status._state(f"h{ESCAPE}", f"a{ESCAPE}", told, None, {"PostgreSQL": f"15{ESCAPE}"})
    gone = status._state("h", "a", HostLost("h", f"why{ESCAPE}"), None, None)
    for host in (there, gone):
        assert "\x1b" not in f"{host.name}{host.address}{host.state}{host.postgres}{''.join(f'{k}{v}' for k, v in host.labels.items())}"
    assert (there.memory, there.cpu) == (1, 0.5) and gone.state.startswith("gone: why")
