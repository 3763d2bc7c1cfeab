"""Homes of servers, with templates and servers that are only pretended; tests/it clones and starts real ones."""

import signal
from dataclasses import replace

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres.disk_space import patience
from pgherd.postgres.installations import Installation
from pgherd.postgres.tcp_access import TcpListener
from pgherd.postgres.templates import Template
from pgherd.runner.deploy import data_directories as module
from pgherd.runner.deploy.data_directories import DataDirectories, Templates
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession

NODE = LocalNode()
INSTALLATIONS = {"/pg": Installation("/pg", "18.1", 18, "system")}
KEYS = [("a", "pg"), ("b", "pg")]


def server(scale=1):
    return Server(bin="/pg", version="18.1", databases=(Database(scale=scale),))


def trial():
    containers = tuple(Container(name=name, servers=(server(),)) for name, _ in KEYS)
    loads = {"local/a/pg/bench": Load()}
    return Trial(
        point={"databases": 2},
        deployment=Deployment(hosts=(Host(containers=containers),)),
        phases=(Phase(name="p", warmup=0, seconds=1, loads=loads),),
    )


@pytest.fixture
def housing(tmp_path, monkeypatch):
    """With a template of one file; what was made and dropped from the cache."""
    for name in ("work", "sockets", "cache", "golden/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "golden/data/PG_VERSION").write_text("18\n")
    made, dropped = [], []

    def ensure(*_, checksums=None, **__):
        made.append(checksums)
        return Template("key", str(tmp_path / "golden"), "18.1", ("pgbench",), True, 3, {"bench": 3}, 0.0, 0.0, parts={})

    monkeypatch.setattr(module.templates, "ensure", ensure)
    monkeypatch.setattr(module, "loaders", lambda *_: [])
    monkeypatch.setattr(module.clones, "drop_cache", lambda node, directories: dropped.extend(directories))
    journal = Journal.open(NODE, tmp_path / "state", "run")
    session = RunSession(NODE, gather(NODE), journal, None, None, tmp_path / "work", tmp_path / "sockets", tmp_path / "cache")
    templates = Templates(session, INSTALLATIONS, RunObserver())
    one = DataDirectories(session, INSTALLATIONS, templates, Volumes(NODE, journal, None, str(tmp_path / "work")), RunObserver())
    one.made, one.dropped, one.templates, one.work = made, dropped, templates, tmp_path / "work"
    yield one
    journal.close()


def wanted(names=KEYS):
    return {key: (Container(name=key[0], servers=(server(),)), server()) for key in names}


def test_each_server_has_a_copy_of_its_own(housing):
    found = housing.restore(wanted(), trial(), tight=False)
    assert list(found) == KEYS and len({one.data_dir for one in found.values()}) == 2
    assert all(NODE.read(f"{one.data_dir}/PG_VERSION") == b"18\n" for one in found.values())
    assert housing.files(found) == [one.data_dir for one in found.values()]
    assert housing.made == [None], "one template serves both"
    for key, one in found.items():
        housing.remove(key, one)
    assert not list(housing.work.iterdir())


def test_other_contents_need_another_template(housing):
    for scale in (1, 2, 1):
        housing.templates.of(server(scale))
    assert len(housing.made) == 2


def test_where_memory_is_short_nothing_of_the_copies_stays_in_the_page_cache(housing):
    housing.restore(wanted(), trial(), tight=True)
    assert len(housing.dropped) == 2


def test_what_was_copied_is_written_to_disk_once_for_all(housing, monkeypatch):
    started = []

    def spawn(command):
        started.append((list(command.argv), process := LocalNode.spawn(NODE, command)))
        return process

    monkeypatch.setattr(NODE, "spawn", spawn)
    found = housing.restore(wanted(), trial(), tight=False)
    with housing.settling({}):
        assert not started, "nothing was copied"
    with housing.settling({key: (one, server()) for key, one in found.items()}):
        ((argv, process),) = started
    assert argv == ["sync", "-f", "--", found[KEYS[0]].data_dir]
    assert process.poll() == 0


class Syncing:
    """A disk that hangs."""

    def __init__(self):
        self.done = []

    def spawn(self, command):
        self.done.append(list(command.argv[:3]))
        return self

    def wait(self, timeout):
        self.done.append(timeout)
        raise TimeoutError

    def signal(self, number):
        self.done.append(number)


def test_a_slow_disk_is_waited_for_by_what_was_copied(housing):
    found = housing.restore(wanted(), trial(), tight=False)
    housing._node = disk = Syncing()
    words = r"the copies for 2 servers .* were not on the disk after .*smaller --scale"
    with pytest.raises(TrialError, match=words), housing.settling({key: (one, server()) for key, one in found.items()}):
        assert disk.done == [["sync", "-f", "--"]]
    waited = patience(2 * housing.templates.of(server()).bytes)
    assert disk.done[1:] == [waited, signal.SIGKILL, module._KILL_TIMEOUT_S], "it is not left to the next trial"
    assert patience(2**40) > 24 * 3600 > patience(0)


def test_nobody_writes_on_for_servers_that_do_not_start(housing):
    found = housing.restore(wanted(), trial(), tight=False)
    housing._node = disk = Syncing()
    with pytest.raises(TrialError, match="does not start"), housing.settling({key: (one, server()) for key, one in found.items()}):
        raise TrialError("a/pg does not start")
    assert disk.done[1:] == [signal.SIGKILL, module._KILL_TIMEOUT_S]


def test_copying_ends_when_the_work_is_called_off(housing, monkeypatch):
    class CalledOff(RunObserver):
        def check_cancelled(self):
            raise TrialError("called off by the driver")

    monkeypatch.setattr(housing, "_watcher", CalledOff())
    with pytest.raises(TrialError, match="called off"):
        housing.restore(wanted(), trial(), tight=False)
    assert not list(housing.work.iterdir())


def test_a_copy_that_fails_leaves_nothing(housing, monkeypatch):
    def full(*_, **__):
        raise TrialError("no space")

    monkeypatch.setattr(module.clones, "clone_all", full)
    with pytest.raises(TrialError, match="no space"):
        housing.restore(wanted(), trial(), tight=False)
    assert not list(housing.work.iterdir())


def test_servers_that_are_open_to_other_hosts_have_a_port_each(housing):
    housing._session = replace(housing._session, opening=TcpListener("127.0.0.1", "/run/own/tls.pem", "secret"))
    found = housing.restore(wanted(), trial(), tight=False)
    ports = [one.port for one in found.values()]
    assert len(set(ports)) == 2 and module.PORT not in ports


def test_a_server_that_does_not_run_keeps_its_port(housing, monkeypatch):
    taken = []

    def free_ports(address, count, kept):
        taken.append(set(kept))
        return [7000 + 10 * len(taken) + number for number in range(count)]

    monkeypatch.setattr(module, "free_ports", free_ports)
    housing._session = replace(housing._session, opening=TcpListener("127.0.0.1", "/run/own/tls.pem", "secret"))
    found = housing.restore(wanted(), trial(), tight=False)
    housing.remove(KEYS[0], found[KEYS[0]])
    housing.restore(wanted(KEYS[:1]), trial(), tight=False)
    assert taken == [set(), {7011}]
