import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgherd.host import netns
from pgherd.host.journal import Journal, clean
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command

NODE = LocalNode()


@pytest.fixture(autouse=True)
def _able():
    try:
        netns.require_root(NODE)
    except CapabilityError as error:
        pytest.skip(str(error))


@pytest.fixture
def journal(tmp_path):
    result = Journal.open(NODE, tmp_path, "test")
    yield result
    result.close()


def own_namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/net")


def test_two_ends_reach_each_other_and_nobody_else(journal):
    before = set(os.listdir("/sys/class/net"))
    created = netns.make(NODE, journal)
    try:
        assert created.alive and set(os.listdir("/sys/class/net")) == before, "nothing of them shows outside"
        assert len({own_namespace(holder.pid) for holder in created.holders} | {own_namespace(os.getpid())}) == 3
        links = NODE.run(Command([*created.prefix, "ip", "-brief", "address"])).out
        assert netns.NEAR in links and "pgherd-near" in links
        route = NODE.run(Command([*created.prefix, "ip", "route", "get", netns.FAR]))
        assert route.code == 0 and NODE.run(Command([*created.prefix, "ip", "route", "get", "192.0.2.1"])).code != 0
        assert len(journal.pending()) == 2
    finally:
        created.close()
    assert journal.pending() == [] and not created.alive


def test_what_cannot_be_shaped_names_the_kernels_module(journal):
    created = netns.make(NODE, journal)
    try:
        netns.shape(created, rate=None, delay=5.0)
    except CapabilityError as error:
        assert "sch_netem" in str(error) or "tc is missing" in str(error)
    else:
        shown = NODE.run(Command([*created.prefix, "tc", "qdisc", "show", "dev", "pgherd-near"])).out
        assert "delay 5ms" in shown
    finally:
        created.close()


def test_a_limit_is_set_at_the_near_end(journal):
    created = netns.make(NODE, journal)
    try:
        netns.shape(created, rate=50e6, delay=None)
        shown = NODE.run(Command([*created.prefix, "tc", "qdisc", "show", "dev", "pgherd-near"])).out
        assert "tbf" in shown and "50Mbit" in shown
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        created.close()


def test_killed_they_go_by_themselves_and_clean_finds_nothing(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from pgherd.host import netns; from pgherd.host.journal import Journal; from pgherd.node.local import LocalNode\n"
        f"made = netns.make(LocalNode(), Journal.open(LocalNode(), Path({str(tmp_path)!r}), 'killed'))\n"
        "print(*(holder.pid for holder in made.holders), flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.communicate()
    clean(NODE, tmp_path)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/ns/net").exists() and _holds(pid) for pid in pids):
        assert time.monotonic() < deadline, "a namespace is still held"
        time.sleep(0.05)


def _holds(pid):
    """A process that only waits to be reaped holds no namespace."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
