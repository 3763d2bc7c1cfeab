import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Link
from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.runner.deploy import link_servers as module
from pgherd.runner.deploy.link_servers import ENTITY, LinkServers, await_listening, refusal, socket_entry

needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


@pytest.fixture
def session(tmp_path):
    journal = Journal.open(LocalNode(), tmp_path / "state", "test")
    yield SimpleNamespace(node=LocalNode(), journal=journal, work=tmp_path, account=None)
    journal.close()


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def link(port, far="b"):
    return Link(name=far, kind="hosts", near="a", host="127.0.0.1", port=port)


@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel writes the words in the machine's own order")
@pytest.mark.parametrize(
    ("address", "entry"),
    [("127.0.0.1", "0100007F:1451"), ("10.204.0.2", "0200CC0A:1451"), ("::1", "00000000000000000000000001000000:1451")],
)
def test_addresses_are_written_as_the_kernel_does(address, entry):
    assert socket_entry(address, 5201) == entry


@needs_iperf3
def test_a_server_listens_at_its_address_until_it_is_stopped(session, port):
    servers = LinkServers(session)
    servers.start([link(port)])
    (view,) = servers.views()
    assert view.entity == ENTITY and refusal("127.0.0.1", port).errno == errno.EADDRINUSE
    assert refusal("127.0.0.2", port) is None, "on its own address alone"
    assert len(session.journal.pending()) == 1
    servers.stop()
    assert servers.views() == [] and session.journal.pending() == [] and refusal("127.0.0.1", port) is None


@needs_iperf3
def test_it_serves_one_test_and_ends(session, port):
    servers = LinkServers(session)
    servers.start([link(port)])
    server = servers._up["a/b"].process
    argv = ["iperf3", "--client", "127.0.0.1", "--port", str(port), "--time", "1", "--bitrate", "100k", "--json"]
    assert subprocess.run(argv, capture_output=True).returncode == 0
    deadline = time.monotonic() + 20
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.poll() is not None
    servers.start([])
    assert session.journal.pending() == []


@needs_iperf3
def test_a_port_that_is_taken_is_said_with_the_way_out(session, port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen(1)
        servers = LinkServers(session)
        # Somebody's socket at the very same address is not taken for ours: the server ends, and says why.
        with pytest.raises(TrialError, match=r"server of link a/b at 127\.0\.0\.1 port \d+ ended .*in use.*--port names another"):
            servers.start([link(port)])
    servers.stop()
    assert session.journal.pending() == []


def test_a_strangers_socket_is_not_ours(monkeypatch):
    monkeypatch.setattr(module, "READY_SECONDS", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port, node = taken.getsockname()[1], LocalNode()
        other = node.spawn(Command(["sleep", "60"]))
        try:
            with pytest.raises(TrialError, match="link a/b did not listen"):
                await_listening(node, other, other.pid, "127.0.0.1", port, "a/b")
        finally:
            other.signal(9)
            other.wait(10)
        ours = SimpleNamespace(pid=os.getpid(), poll=lambda: None)
        monkeypatch.setattr(module, "READY_SECONDS", 20)
        await_listening(node, ours, os.getpid(), "127.0.0.1", port, "a/b")


def test_an_address_of_another_machine_is_refused(port):
    assert refusal("192.0.2.1", port).errno == errno.EADDRNOTAVAIL
    assert refusal("127.0.0.1", port) is None
    assert isinstance(refusal("no-such-host.invalid", port), OSError)
