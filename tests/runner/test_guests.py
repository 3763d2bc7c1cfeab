"""Guests of a run, with machines and disks that are only pretended; tests/it/test_vm.py boots real ones."""

from pathlib import Path

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Server
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.postgres.golden import Golden
from pgherd.postgres.installations import Installation
from pgherd.runner import guests as module
from pgherd.runner.guests import Guests
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room
from pgherd.runtimes.vm.runtime import VmRuntime

NODE = LocalNode()
SERVER = Server(bin="/pg", version="18.1")


class Machine:
    """A guest that runs until it is told not to."""

    class hypervisor:
        functional_only = True

    pid = 4711

    def __init__(self, name, port):
        self.running = True
        self.guest = type("Guest", (), {"port": port, "memory": 2**30})()

    def ending(self):
        return "was ended by signal 9"

    def last_words(self):
        return "its console ends with:\nlast"


class Node(LocalNode):
    clock = object()


class Machines(VmRuntime):
    """A runtime whose guests are there at once; ``booted`` is which, with which disks."""

    def __init__(self):
        self.booted, self.ended, self.up, self.silent = [], [], {}, set()
        self.balloons = None

    def boot(self, container, room, images, disks, directory):
        self.booted.append((container.name, disks[0].path))
        self.up[container.name] = Machine(container.name, 40000 + len(self.up))
        return self.up[container.name]

    def connect(self, container, timeout=1.0):
        if container in self.silent:
            raise OSError("nobody answers")
        return Node()

    def machines(self):
        return self.up

    def end(self, container):
        self.ended.append(container)
        self.up.pop(container, None)


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """A run's guests, and where its disks lie."""
    for name in ("work", "sockets", "cache"):
        (tmp_path / name).mkdir()
    machines = Machines()

    class Images:
        class hypervisor:
            def sentence():
                return "emulated"

        class root:
            account = "postgres"

    class Goldens:
        def of(self, server):
            return Golden("key", "/golden", "18.1", ("pgbench",), True, 1, {"bench": 1}, 0.0, 0.0)

    packed = []

    def pack(node, golden, stage, image, *, free, account):
        packed.append(image)
        Path(image).write_bytes(b"disk")

    monkeypatch.setattr(module.images, "build", lambda *_, **__: Images)
    monkeypatch.setattr(module.disk_image, "pack_golden", pack)
    journal = Journal.open(NODE, tmp_path / "state", "run")
    session = Session(NODE, gather(NODE), journal, type("Runtimes", (), {"get": lambda self, name: machines})(), None, *(
        tmp_path / name for name in ("work", "sockets", "cache")
    ))  # fmt: skip
    found = Guests(session, {"/pg": Installation("/pg", "18.1", 18, "system")}, Goldens(), Watcher())
    found.machines, found.packed, found.work = machines, packed, tmp_path / "work"
    yield found
    journal.close()


def wanted(*names):
    return {(name, "pg"): (Container(name=name, runtime="vm", servers=(SERVER,)), SERVER) for name in names}


def rooms(*names):
    return {name: Room(name) for name in names}


def test_each_guest_has_a_disk_of_its_own_copied_from_one_packed_once(guests):
    instances, entered = guests.restore(wanted("a", "b"), rooms("a", "b"))
    assert len(guests.packed) == 1
    (_, first), (_, second) = guests.machines.booted
    assert first != second and Path(first).read_bytes() == Path(second).read_bytes() == b"disk"
    assert all(room.node is not None and room.clock is Node.clock for room in entered.values())
    one = instances["a", "pg"]
    assert (one.access.host, one.access.port, one.data_dir) == ("127.0.0.1", 40000, "/srv/pgherd/data")
    passwords = guests.work / "passwords"
    assert passwords.stat().st_mode & 0o777 == 0o600 and len(passwords.read_text().splitlines()) == 2
    assert one.access.password not in one.conninfo()


def test_a_restored_guest_gets_a_fresh_disk(guests):
    guests.restore(wanted("a"), rooms("a"))
    disk = Path(guests.machines.booted[0][1])
    disk.write_bytes(b"written")
    guests.restore(wanted("a"), rooms("a"))
    assert disk.read_bytes() == b"disk" and guests.machines.ended == ["a", "a"]


def test_guests_are_seen_and_told_as_emulated(guests):
    assert not guests.views() and not guests.readings()
    guests.restore(wanted("a"), rooms("a"))
    assert [(view.name, view.pid, view.memory) for view in guests.views()] == [("a", 4711, 2**30)]
    assert guests.readings() == {"guest:a": {"emulated": 1.0}}


def test_a_guest_that_ended_is_named_with_its_last_words(guests):
    guests.restore(wanted("a"), rooms("a"))
    guests.check()
    guests.machines.up["a"].running = False
    with pytest.raises(TrialError, match="guest a was ended by signal 9 during the trial; its console ends with:\nlast"):
        guests.check()


def test_a_guest_that_does_not_answer_fails_the_trial(guests):
    guests.machines.silent.add("a")
    with pytest.raises(TrialError, match="guest a does not answer: nobody answers"):
        guests.restore(wanted("a"), rooms("a"))


def test_a_container_that_goes_takes_its_disk_along(guests):
    guests.restore(wanted("a"), rooms("a"))
    guests.forget("a")
    assert not list(guests.work.glob("guest-*")) and not guests.views()
    guests.forget("a")


def test_several_servers_in_one_guest_are_refused(guests):
    two = {("a", name): (Container(name="a", runtime="vm", servers=(SERVER,)), SERVER) for name in ("x", "y")}
    with pytest.raises(CapabilityError, match="container a is a guest and is to hold several servers"):
        guests.restore(two, rooms("a"))


def test_nothing_wanted_is_nothing_done(guests):
    assert guests.restore({}, {}) == ({}, {})
