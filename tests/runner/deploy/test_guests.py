"""Guests of a run, with machines and disks that are only pretended; tests/it/test_vm.py boots real ones."""

from pathlib import Path

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Deployment, Host, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.postgres.relation_files import TablespaceDirs
from pgherd.postgres.templates import Template
from pgherd.runner.deploy import guests as module
from pgherd.runner.deploy.guests import GuestDisks, Guests
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm.disk_image import DiskImage
from pgherd.runtimes.vm.runtime import VmRuntime

NODE = LocalNode()
SERVER = Server(bin="/pg", version="18.1")
BARE = Deployment(hosts=(Host(),))


class Machine:
    """A guest that runs until it is told not to."""

    class hypervisor:
        functional_only = True

    pid, boot_seconds = 4711, 0.5

    def __init__(self, name, ports):
        self.running = True
        self.guest = type("Guest", (), {"ports": ports, "memory": 2**30, "merge": False})()

    def ended(self):
        return not self.running

    def ending(self):
        return "was ended by signal 9"

    def oom_kills(self):
        return list(getattr(self, "killed", ()))

    def last_words(self):
        return "its console ends with:\nlast"


class Node(LocalNode):
    clock = object()


class Machines(VmRuntime):
    """A runtime whose guests are there at once; ``booted`` is which, with which disks."""

    def __init__(self):
        self.booted, self.ended, self.up, self.silent, self._nodes = [], [], {}, set(), {}
        self.balloons = None

    def boot(self, container, handle, images, disks, directory, servers=1, account=None, how=None):
        self.booted.append((container.name, disks[0].path if disks else None))
        self.disks = disks
        first = 40000 + 10 * len(self.up)
        self.up[container.name] = Machine(container.name, tuple(range(first, first + servers)))
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
            account, path = "postgres", "/root.ext4"

        boot, initrd = "/vmlinux", "/initrd"

    class FakeTemplates:
        def of(self, server):
            return Template("key", "/golden", "18.1", ("pgbench",), True, 1, {"bench": 1}, 0.0, 0.0, parts={})

    packed = []

    def pack(node, golden, stage, image, *, free, account, **apart):
        packed.append(image)
        Path(image).write_bytes(b"disk")
        return [DiskImage(image, 4, 4, 0.0)]

    monkeypatch.setattr(module.boot_images, "build", lambda *_, **__: Images)
    monkeypatch.setattr(module.disk_image, "pack_template", pack)
    journal = Journal.open(NODE, tmp_path / "state", "run")
    session = RunSession(NODE, gather(NODE), journal, type("Runtimes", (), {"get": lambda self, name: machines})(), None, *(
        tmp_path / name for name in ("work", "sockets", "cache")
    ))  # fmt: skip
    found = Guests(
        session, {"/pg": Installation("/pg", "18.1", 18, "system")}, FakeTemplates(), Volumes(NODE, journal, None), RunObserver()
    )
    found.machines, found.packed, found.work, found.images = machines, packed, tmp_path / "work", Images
    yield found
    journal.close()


def wanted(*names):
    return {(name, "pg"): (Container(name=name, runtime="vm", servers=(SERVER,)), SERVER) for name in names}


def handles(*names):
    return {name: ContainerHandle(name) for name in names}


def test_each_guest_has_a_disk_of_its_own_copied_from_one_packed_once(guests):
    instances, entered = guests.restore(wanted("a", "b"), handles("a", "b"), BARE)
    assert len(guests.packed) == 1
    (_, first), (_, second) = guests.machines.booted
    assert first != second and Path(first).read_bytes() == Path(second).read_bytes() == b"disk"
    assert all(handle.node is not None and handle.clock is Node.clock for handle in entered.values())
    one = instances["a", "pg"]
    assert (one.access.host, one.access.port, one.data_dir) == ("127.0.0.1", 40000, "/srv/pgherd/data")
    passwords = guests.work / "passwords"
    assert passwords.stat().st_mode & 0o777 == 0o600 and len(passwords.read_text().splitlines()) == 2
    assert one.access.password not in one.conninfo()


def test_a_restored_guest_gets_a_fresh_disk(guests):
    guests.restore(wanted("a"), handles("a"), BARE)
    disk = Path(guests.machines.booted[0][1])
    disk.write_bytes(b"written")
    guests.restore(wanted("a"), handles("a"), BARE)
    assert disk.read_bytes() == b"disk" and guests.machines.ended == ["a", "a"]


def test_guests_are_seen_and_told_as_emulated(guests):
    assert not guests.views() and not guests.readings()
    guests.restore(wanted("a"), handles("a"), BARE)
    assert [(view.name, view.pid, view.memory) for view in guests.views()] == [("a", 4711, 2**30)]
    assert guests.readings() == {"guest:a": {"emulated": 1.0}}


def test_a_guest_that_ended_is_named_with_its_last_words(guests):
    guests.restore(wanted("a"), handles("a"), BARE)
    guests.check()
    guests.machines.up["a"].running = False
    with pytest.raises(TrialError, match="guest a was ended by signal 9 during the trial; its console ends with:\nlast"):
        guests.check()


def test_a_guest_that_does_not_answer_fails_the_trial(guests):
    guests.machines.silent.add("a")
    with pytest.raises(TrialError, match="guest a does not respond: nobody answers"):
        guests.restore(wanted("a"), handles("a"), BARE)


def test_a_container_that_goes_takes_its_disk_along(guests):
    guests.restore(wanted("a"), handles("a"), BARE)
    guests.forget("a")
    assert not list(guests.work.glob("guest-*")) and not guests.views()
    guests.forget("a")


def together(first=SERVER, second=SERVER):
    """Two servers in one guest."""
    return {("a", name): (Container(name="a", runtime="vm"), server) for name, server in (("x", first), ("y", second))}


def test_each_server_of_a_guest_has_a_disk_a_port_and_a_password_of_its_own(guests):
    instances, _ = guests.restore(together(), handles("a"), BARE)
    assert [name for name, _ in guests.machines.booted] == ["a"], "one guest holds both"
    assert [(disk.serial, disk.mount) for disk in guests.machines.disks] == [("data", "/srv/pgherd"), ("data-2", "/srv/pgherd-2")]
    x, y = instances["a", "x"], instances["a", "y"]
    assert (x.data_dir, x.port, x.access.port) == ("/srv/pgherd/data", 5432, 40000)
    assert (y.data_dir, y.port, y.access.port) == ("/srv/pgherd-2/data", 5433, 40001)
    assert x.socket_dir == y.socket_dir and x.access.password != y.access.password
    assert len((guests.work / "passwords").read_text().splitlines()) == 2
    guests.forget("a")
    assert not guests.readings()


def test_servers_of_two_installations_in_one_guest_are_refused(guests):
    other = SERVER.model_copy(update={"bin": "/other"})
    with pytest.raises(CapabilityError, match="different PostgreSQL installations cannot share a guest"):
        guests.restore(together(second=other), handles("a"), BARE)


def test_modules_of_ours_are_put_into_the_guest(guests, monkeypatch):
    made = []
    monkeypatch.setattr(module.boot_images, "build", lambda *_, extra, **__: made.append(extra) or guests.images)
    library = SERVER.model_copy(update={"settings": {"dynamic_library_path": "/cache/pg_balloon/x:$libdir"}})
    guests.restore({("a", "pg"): (Container(name="a", runtime="vm"), library)}, handles("a"), BARE)
    assert made == [("/cache/pg_balloon/x",)]


def test_a_disk_has_room_for_wal_and_to_grow(guests, monkeypatch):
    free = []
    pack = module.disk_image.pack_template
    monkeypatch.setattr(module.disk_image, "pack_template", lambda *args, **kept: free.append(kept["free"]) or pack(*args, **kept))
    large = SERVER.model_copy(update={"settings": {"max_wal_size": "4GB"}})
    guests.restore({("a", "pg"): (Container(name="a", runtime="vm"), large)}, handles("a"), BARE)
    assert free == [module.FREE_BYTES + 4 * 2**30 + module.FREE_PER_TEMPLATE]


def test_what_a_guests_own_kernel_ended_is_a_memory_kill_of_its_container(guests):
    assert guests.kills() == ()
    guests.restore(wanted("a", "b"), handles("a", "b"), BARE)
    guests.machines.up["a"].killed = ["postgres", "postgres"]
    (kill,) = guests.kills()
    assert (kill.container, kill.processes, kill.names, kill.limit) == ("a", 2, ("postgres",), "container")


def test_guests_are_ended_before_the_budget_changes_and_their_disks_stay(guests):
    guests.restore(wanted("a", "b"), handles("a", "b"), BARE)
    guests.machines.ended.clear()
    guests.end(["a", "c"])
    assert guests.machines.ended == ["a"] and (guests.work / "guest-a").exists()


def test_nothing_wanted_is_nothing_done(guests):
    assert guests.restore({}, {}, BARE) == ({}, {})


KEY = ("a", "pg")


class FakeTemplates:
    def of(self, server):
        return Template("key", "/golden", "18.1", ("pgbench",), True, 1, {"bench": 1}, 0.0, 0.0, parts={})


@pytest.fixture
def disks(tmp_path, monkeypatch):
    """The disks of a run; ``packed`` is what was packed, with its options."""
    for name in ("work", "sockets", "cache"):
        (tmp_path / name).mkdir()
    packed = []

    def golden(node, copy, stage, image, **options):
        packed.append(options)
        images = [image, *([options["wal"]] if options.get("wal") else [])]
        for one in images:
            Path(one).write_bytes(b"disk")
            Path(one).chmod(0o600)
        return [DiskImage(one, 4, 4, 0.0) for one in images]

    def empty(node, directory, image, *, free, account=None):
        assert Path(directory).parent.stat().st_mode & 0o077 == 0, "nobody else may exchange what mkfs reads by its path"
        packed.append(sorted(path.name for path in Path(directory).iterdir()))
        Path(image).write_bytes(b"empty")
        return DiskImage(image, 5, 5, 0.0)

    monkeypatch.setattr(module.disk_image, "pack_template", golden)
    monkeypatch.setattr(module.disk_image, "pack", empty)
    monkeypatch.setattr(module, "check_space", lambda *_: None)
    journal = Journal.open(NODE, tmp_path / "state", "run")
    places = (tmp_path / name for name in ("work", "sockets", "cache"))
    session = RunSession(NODE, gather(NODE), journal, None, None, *places)
    found = GuestDisks(session, FakeTemplates(), Volumes(NODE, journal, None, str(tmp_path / "work")), RunObserver())
    found.packed, found.work = packed, tmp_path / "work"
    yield found
    journal.close()


def deployment(tmp_path, *names):
    volumes = []
    for name in names:
        (tmp_path / name).mkdir(exist_ok=True)
        volumes.append(Volume(name=name, path=str(tmp_path / name)))
    return Deployment(hosts=(Host(),), volumes=tuple(volumes))


def account():
    import getpass

    return getpass.getuser()


def test_without_volumes_there_is_one_disk_below_the_work_directory(disks, tmp_path):
    (disk,) = disks.furnish("a", {KEY: Server(bin="/pg", version="18.1")}, deployment(tmp_path), account())
    assert (disk.serial, disk.mount, disk.path) == ("data", "/srv/pgherd", str(disks.work / "guest-a/data.raw"))
    assert Path(disk.path).stat().st_mode & 0o777 == 0o600, "a copy is as private as what was packed"
    assert disks.packed[0]["wal"] is None and "a" in disks and "b" not in disks
    disks.remove("a")
    assert not (disks.work / "guest-a").exists() and "a" not in disks and disks.of("a") == []


def test_what_is_to_lie_apart_is_on_disks_of_its_own_on_the_volumes(disks, tmp_path):
    volumes = {"data": "fast", "wal": "log", "temp": "scratch"}
    server = Server(bin="/pg", version="18.1", volumes=volumes, tablespaces=("scratch", "log"))
    made = disks.furnish("a", {KEY: server}, deployment(tmp_path, "fast", "log", "scratch"), account())
    assert [(disk.serial, disk.mount) for disk in made] == [
        ("data", "/srv/pgherd"),
        ("wal", "/srv/pgherd-wal"),
        ("temp", "/srv/pgherd-temp"),
        ("space0", "/srv/pgherd-space0"),
        ("space1", "/srv/pgherd-space1"),
    ]
    on = [Path(disk.path).relative_to(tmp_path).parts[0] for disk in made]
    assert on == ["fast", "log", "scratch", "scratch", "log"]
    assert disks.packed[0]["wal_mount"] == "/srv/pgherd-wal" and disks.packed[1:] == [["files"]] * 3
    assert [one.role for one in disks.of("a")] == ["data", "wal", "temp", "tablespace", "tablespace"]
    disks.remove("a")
    assert not any(Path(disk.path).exists() for disk in made), "nothing of it is left on the volumes"


def test_tablespaces_are_made_once_after_each_restoring(disks, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(module, "create", lambda instance, databases, spaces: made.append((databases, spaces)))
    server = Server(bin="/pg", version="18.1", volumes={"temp": "scratch"}, tablespaces=("scratch",))
    disks.furnish("a", {KEY: server}, deployment(tmp_path, "scratch"), account())
    for _ in range(2):
        disks.populate(KEY, None, ["bench"])
    assert made == [(["bench"], TablespaceDirs("/srv/pgherd-temp/files", ("/srv/pgherd-space0/files",)))]
    disks.populate(("b", "pg"), None, ["bench"])
    assert len(made) == 1


def test_servers_with_and_without_wal_apart_are_packed_apart(disks, tmp_path):
    plain = Server(bin="/pg", version="18.1")
    apart = plain.model_copy(update={"volumes": {"wal": "log"}})
    made = disks.furnish("a", {("a", "x"): plain, ("a", "y"): apart, ("a", "z"): plain}, deployment(tmp_path, "log"), account())
    assert [disk.serial for disk in made] == ["data", "data-2", "wal-2", "data-3"]
    assert made[2].mount == "/srv/pgherd-wal-2" and len(disks.packed) == 2


def test_a_disk_that_cannot_be_copied_leaves_nothing(disks, tmp_path, monkeypatch):
    run = NODE.run
    failing = type("Completed", (), {"code": 1, "err": "cp: no space\n"})()
    monkeypatch.setattr(NODE, "run", lambda command, timeout=60.0: failing if command.argv[0] == "cp" else run(command, timeout))
    with pytest.raises(TrialError, match="the disk 'data' of a guest cannot be copied: cp: no space"):
        disks.furnish("a", {KEY: Server(bin="/pg", version="18.1")}, deployment(tmp_path), account())
    assert not (disks.work / "guest-a").exists() and "a" not in disks


def test_devices_are_told_by_their_serials(tmp_path):
    class Guest:
        def listdir(self, path):
            return ["loop0", "vda", "vdb"]

        def read(self, path):
            return {"/sys/block/vda/serial": b"root", "/sys/block/vdb/serial": b"data\n"}[path]

    assert module.devices(Guest()) == {"root": "vda", "data": "vdb"}
    assert module.devices(type("Gone", (), {"listdir": lambda self, path: [][0:] or (_ for _ in ()).throw(OSError())})()) == {}


def test_a_guest_without_servers_is_booted_without_disks(guests):
    container = Container(name="bare", runtime="vm")
    entered = guests.boot_without_server(container, ContainerHandle("bare"))
    booted = guests.booted("bare")
    assert guests.machines.booted == [("bare", None)] and not guests.packed
    assert entered.node is booted.node and booted.machine is guests.machines.up["bare"]
    assert set(booted.seconds) == {"packing the disk", "booting", "first answer of the agent"}
    guests.forget("bare")
    with pytest.raises(TrialError, match="container bare has no running guest"):
        guests.booted("bare")
