"""Targets that are no databases: which trial's targets are reached how, and what is made for them."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.drivers.fio import FILE, file_argv
from pgherd.host import netns
from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Deployment, Host, Link, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.runner.deploy import targets as module
from pgherd.runner.deploy.targets import (
    ENTITY,
    NO_CONTAINER,
    HostTargets,
    LinkServers,
    LinkTargets,
    Targets,
    VolumeTargets,
    await_listening,
    ensure_file,
    refusal,
    socket_entry,
)
from pgherd.runner.progress import RunObserver


class Volumes:
    """Directories by volume; ``checked`` counts the looks at whether they are there."""

    def __init__(self):
        self.asked, self.checked = [], 0

    def directory(self, volume):
        self.asked.append(volume.name)
        return f"/made/{volume.name}"

    def check(self):
        self.checked += 1


def trial(*loads):
    volumes = tuple(Volume(name=name, path=f"/mnt/{name}") for name in ("a", "b"))
    phases = tuple(Phase(loads=one) for one in loads)
    return Trial(point={}, deployment=Deployment(hosts=(Host(),), volumes=volumes), phases=phases)


FIO = Load(driver="fio", options={"rw": "read", "size": "100"})


@pytest.fixture
def volumes(monkeypatch):
    monkeypatch.setattr(module, "ensure_file", lambda node, directory, loads, account, watcher: directory.endswith("a"))
    return Volumes()


def session():
    return SimpleNamespace(node=LocalNode(), account=None)


def test_a_loaded_volume_is_reached_by_its_directory(volumes):
    targets = VolumeTargets(session(), volumes, RunObserver())
    assert targets.apply(trial({"a": FIO}, {"a": FIO, "b": FIO})) == "files on a written"
    assert targets.endpoint("b").directory == "/made/b" and targets.endpoint("b").handle is NO_CONTAINER
    assert targets.endpoint("c") is None and targets.error_text("c") is None and "/made/a" in targets.error_text("a")
    assert targets.directories == {"a": "/made/a", "b": "/made/b"}
    targets.check()
    assert volumes.checked == 1


@pytest.mark.parametrize(("roles", "directory"), [({}, "{work}/load"), ({"data": "b"}, "/made/b")])
def test_files_of_a_database_are_on_the_device_of_its_data(volumes, tmp_path, roles, directory):
    server = Server(bin="/pg/bin", version="18.6", volumes=roles)
    deployment = trial().deployment.model_copy(update={"hosts": (Host(containers=(Container(name="c", servers=(server,)),)),)})
    database = "local/c/pg/bench"
    targets = VolumeTargets(SimpleNamespace(node=LocalNode(), account=None, work=tmp_path), volumes, RunObserver())
    targets.apply(Trial(point={}, deployment=deployment, phases=(Phase(loads={database: FIO}),)))
    assert targets.of_database(database) == directory.format(work=tmp_path)
    assert targets.endpoint(database) is None and targets.directories == {}, "its endpoint is that of the database"
    targets.apply(Trial(point={}, deployment=deployment, phases=(Phase(loads={database: Load()}),)))
    assert targets.of_database(database) == ""


def test_an_idle_volume_is_not_made(volumes):
    targets = VolumeTargets(session(), volumes, RunObserver())
    targets.apply(trial({"b": FIO}))
    assert volumes.asked == ["b"] and targets.endpoint("a") is None


def test_a_host_is_there(volumes):
    targets = HostTargets()
    assert targets.endpoint("local") is None
    targets.apply(trial({"local": Load(driver="command")}))
    assert targets.endpoint("local").handle is NO_CONTAINER and targets.endpoint("elsewhere") is None
    assert not targets.endpoint("local").privileged
    targets.apply(trial({"local": Load(driver="command", options={"privileged": "1"})}))
    assert targets.endpoint("local").privileged


def test_all_kinds_are_asked(volumes):
    targets = Targets(session(), volumes, RunObserver())
    assert targets.apply(trial({"a": FIO, "local": Load(driver="command")})) == ["files on a written"]
    assert targets.endpoint("a").directory and targets.endpoint("local") is not None and targets.endpoint("nothing") is None
    assert targets.readings() == {} and targets.error_text("nothing") is None
    targets.close()
    assert targets.endpoint("a") is None


def test_a_volume_of_one_of_several_hosts_is_reached_by_both_names(volumes):
    deployment = Deployment(hosts=(Host(name="h"),), volumes=(Volume(name="a", path="/mnt/a", host="h"),))
    targets = VolumeTargets(session(), volumes, RunObserver())
    targets.apply(Trial(point={}, deployment=deployment, phases=(Phase(loads={"h/a": FIO}),)))
    assert targets.endpoint("h/a").directory == "/made/a" and targets.endpoint("a") is None


def test_what_is_up_for_a_trial_alone_is_ended_with_it(volumes, monkeypatch):
    targets = Targets(session(), volumes, RunObserver())
    stopped = []
    monkeypatch.setattr(targets._links.servers, "stop", lambda: stopped.append(True))
    assert targets.views() == []
    targets.stop_phase_targets()
    assert stopped == [True]


class Node(LocalNode):
    """fio is replaced: it makes the file, or fails."""

    def __init__(self, fails=False):
        self.calls, self.fails = [], fails

    def run(self, command, timeout=60.0):
        if command.argv[0] != "fio":
            return super().run(command, timeout)
        self.calls.append(list(command.argv))
        if self.fails:
            Path(next(word for word in command.argv if word.startswith("--filename=")).partition("=")[2]).write_bytes(b"0" * 2**20)
            return Completed(1, "", "fio: native_fallocate call failed: No space left on device")
        where = next(word for word in command.argv if word.startswith("--filename=")).partition("=")[2]
        with open(where, "wb") as file:
            file.truncate(int(next(word for word in command.argv if word.startswith("--size=")).partition("=")[2]))
        return Completed(0, "", "")


def fio(size, **options):
    return Load(driver="fio", options={"rw": "read", "size": str(size), **options})


def test_the_largest_is_written_once(tmp_path):
    node = Node()
    assert ensure_file(node, str(tmp_path), [fio(2**20), fio(2**21)], None, RunObserver()) is True
    assert (tmp_path / FILE).stat().st_size == 2**21
    assert ensure_file(node, str(tmp_path), [fio(2**20)], None, RunObserver()) is False and len(node.calls) == 1
    assert ensure_file(node, str(tmp_path), [fio(2**22)], None, RunObserver()) is True


def test_past_the_page_cache_where_that_is_possible(tmp_path):
    node = Node()
    ensure_file(node, str(tmp_path), [fio(2**20, direct="0")], None, RunObserver())
    assert "--direct=0" in node.calls[0]


def test_other_drivers_need_no_file(tmp_path):
    assert ensure_file(Node(), str(tmp_path), [Load(driver="command")], None, RunObserver()) is False
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said(tmp_path):
    with pytest.raises(TrialError, match="a file of 1 MB cannot be written in .*No space left on device"):
        ensure_file(Node(fails=True), str(tmp_path), [fio(2**20)], None, RunObserver())
    assert not list(tmp_path.iterdir()), "what could not be written is not taken for a finished file, whatever its size"


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_an_unfinished_file_is_smaller(tmp_path):
    file = tmp_path / FILE
    with subprocess.Popen(file_argv(str(tmp_path), 2**30, direct=False), cwd=tmp_path, stdout=subprocess.DEVNULL) as fill:
        deadline = time.monotonic() + 30
        while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.001)
        fill.kill()
    assert 0 < file.stat().st_size < 2**30


@pytest.fixture
def links_session(tmp_path):
    journal = Journal.open(LocalNode(), tmp_path, "test")
    yield SimpleNamespace(node=LocalNode(), journal=journal)
    journal.close()


def links_trial(*links, loaded=None):
    loads = {name: Load(driver="iperf3") for name in (loaded if loaded is not None else [link.name for link in links])}
    return Trial(point={"streams": 1}, deployment=Deployment(hosts=(Host(),), links=links), phases=(Phase(loads=loads),))


def test_a_remote_link_is_reached_by_its_address(links_session):
    targets = LinkTargets(links_session)
    assert targets.apply(links_trial(Link(name="db2", host="10.0.0.2", port=5300))) is None
    reach = targets.endpoint("db2")
    assert (reach.host, reach.port, reach.prefix, reach.privileged) == ("10.0.0.2", 5300, (), False)
    assert targets.endpoint("local") is None and targets.error_text("local") is None
    assert "10.0.0.2 port 5300" in targets.error_text("db2")


def test_namespaces_are_kept_while_they_are_wanted(links_session):
    try:
        netns.require_root(links_session.node)
    except CapabilityError as error:
        pytest.skip(str(error))
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    targets, link = LinkTargets(links_session), Link(name="here", kind="namespaces")
    try:
        assert targets.apply(links_trial(link)) == "namespaces of here made"
        first = targets.endpoint("here")
        assert first.privileged and first.host == netns.FAR and first.prefix[0] == "nsenter"
        assert targets.apply(links_trial(link)) is None and targets.endpoint("here") == first
        targets.check()
        server = targets._pairs[link][1]
        server.signal(9)
        server.wait(5)
        with pytest.raises(TrialError, match="far end of link here has ended"):
            targets.check()
        assert targets.apply(links_trial(link)) == "namespaces of here made", "what has ended is made again"
        targets.apply(links_trial(link, loaded=[]))
        assert links_session.journal.pending() == []
    finally:
        targets.close()
    assert links_session.journal.pending() == []


def test_between_hosts_the_far_end_has_a_server_and_the_near_one_a_way(links_session, monkeypatch):
    started = []
    monkeypatch.setattr(LinkServers, "start", lambda self, links: started.append([link.target for link in links]))
    link = Link(name="b", kind="hosts", near="a", host="10.0.0.2")

    def part(host, loads):
        deployment = Deployment(hosts=(Host(name=host),), links=(link,))
        phase = Phase.model_construct(name="steady", warmup=0, seconds=1, loads=loads)
        return Trial.model_construct(point={}, deployment=deployment, phases=(phase,))

    near, far = LinkTargets(links_session), LinkTargets(links_session)
    assert near.apply(part("a", {"a/b": Load(driver="iperf3")})) is None and far.apply(part("b", {})) == "serving a/b"
    assert started == [[], ["a/b"]]
    assert (near.endpoint("a/b").host, near.endpoint("a/b").port) == ("10.0.0.2", 5201) and far.endpoint("a/b") is None
    assert "server on host b listened at 10.0.0.2 port 5201" in near.error_text("a/b")


needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


@pytest.fixture
def link_servers_session(tmp_path):
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
def test_a_server_listens_at_its_address_until_it_is_stopped(link_servers_session, port):
    servers = LinkServers(link_servers_session)
    servers.start([link(port)])
    (view,) = servers.views()
    assert view.entity == ENTITY and refusal("127.0.0.1", port).errno == errno.EADDRINUSE
    assert refusal("127.0.0.2", port) is None, "on its own address alone"
    assert len(link_servers_session.journal.pending()) == 1
    servers.stop()
    assert servers.views() == [] and link_servers_session.journal.pending() == [] and refusal("127.0.0.1", port) is None


@needs_iperf3
def test_it_serves_one_test_and_ends(link_servers_session, port):
    servers = LinkServers(link_servers_session)
    servers.start([link(port)])
    server = servers._up["a/b"].process
    argv = ["iperf3", "--client", "127.0.0.1", "--port", str(port), "--time", "1", "--bitrate", "100k", "--json"]
    assert subprocess.run(argv, capture_output=True).returncode == 0
    deadline = time.monotonic() + 20
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.poll() is not None
    servers.start([])
    assert link_servers_session.journal.pending() == []


def test_messages_of_a_server_are_read_from_their_end(link_servers_session, port, tmp_path, monkeypatch):
    program = tmp_path / "iperf3"
    program.write_text(f"#!{sys.executable}\nimport os\nos.truncate(2, 2**40)\nos.write(2, b'\\nno room\\n')\nraise SystemExit(1)\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(TrialError, match=r"no room\)") as error:
        LinkServers(link_servers_session).start([link(port)])
    assert len(str(error.value)) < 2**20


@needs_iperf3
def test_a_port_that_is_taken_is_said_with_the_way_out(link_servers_session, port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen(1)
        servers = LinkServers(link_servers_session)
        # Somebody's socket at the very same address is not taken for ours: the server ends, and says why.
        with pytest.raises(
            TrialError, match=r"server of link a/b at 127\.0\.0\.1 port \d+ ended .*in use.*choose a different port with --port"
        ):
            servers.start([link(port)])
    servers.stop()
    assert link_servers_session.journal.pending() == []


def test_a_strangers_socket_is_not_ours(monkeypatch):
    monkeypatch.setattr(module, "READY_TIMEOUT_S", 0.1)
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
        monkeypatch.setattr(module, "READY_TIMEOUT_S", 20)
        await_listening(node, ours, os.getpid(), "127.0.0.1", port, "a/b")


def test_an_address_of_another_machine_is_refused(port):
    assert refusal("192.0.2.1", port).errno == errno.EADDRNOTAVAIL
    assert refusal("127.0.0.1", port) is None
    assert isinstance(refusal("no-such-host.invalid", port), OSError)
