"""How a cluster stands."""

from __future__ import annotations

import json

from pgherd.cluster import status
from pgherd.cluster.interfaces import HostClockOffset, HostLost

ESCAPE = "\x1b]0;title\x07"


def test_a_cluster_that_is_there(loopback):
    observed = status.read_status(loopback)
    assert [(host.name, host.address, host.state) for host in observed.hosts] == [
        ("left", "127.0.0.2", "idle"),
        ("right", "127.0.0.3", "idle"),
    ]
    assert observed.gone == [] and observed.differences == () and observed.address == loopback
    document = observed.document()
    json.dumps(document)
    assert document["hosts"][0]["offset"]["uncertainty"] > 0 and document["hosts"][0]["memory"] > 1e6
    assert "±" in observed.hosts[0].clock and "MB" in observed.hosts[0].agent_usage.replace("MiB", "MB") and observed.hosts[0].postgres


def test_one_that_is_gone_says_why():
    gone = status._state("a", "10.0.0.1", HostLost("a", "its agent has ended"), None, {})
    assert gone.state == "gone: its agent has ended" and gone.clock == "unknown" and gone.agent_usage == "" and gone.postgres == ""
    observed = {"driver": "head, pid 3", "memory": 1 << 20, "cpu": 1.0}
    remote = status._state("a", "10.0.0.1", observed, HostClockOffset(0.0015, 0.0002, 1, 0.0004, 9), {})
    assert remote.state == "used by head, pid 3" and remote.clock == "+1.50 ± 0.20 ms"


def test_texts_of_hosts_do_not_control_the_terminal():
    reported = {"driver": f"x{ESCAPE}", "memory": 1, "cpu": 0.5, "labels": {f"k{ESCAPE}": f"v{ESCAPE}"}}
    remote = status._state(f"h{ESCAPE}", f"a{ESCAPE}", reported, None, {"PostgreSQL": f"15{ESCAPE}"})
    gone = status._state("h", "a", HostLost("h", f"why{ESCAPE}"), None, None)
    for host in (remote, gone):
        assert "\x1b" not in f"{host.name}{host.address}{host.state}{host.postgres}{''.join(f'{k}{v}' for k, v in host.labels.items())}"
    assert (remote.memory, remote.cpu) == (1, 0.5) and gone.state.startswith("gone: why")
