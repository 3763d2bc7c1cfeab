"""Disks of guests' servers, with packing that is only pretended; tests/it/test_vm.py packs and mounts real ones."""

from pathlib import Path

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Deployment, Host, Server, Volume
from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.postgres.golden import Golden
from pgherd.postgres.relations import Spaces
from pgherd.runner.deploy import guest_disks as module
from pgherd.runner.deploy.guest_disks import GuestDisks
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.vm.disk_image import DiskImage

NODE = LocalNode()
KEY = ("a", "pg")


class Goldens:
    def of(self, server):
        return Golden("key", "/golden", "18.1", ("pgbench",), True, 1, {"bench": 1}, 0.0, 0.0, parts={})


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
        packed.append(sorted(path.name for path in Path(directory).iterdir()))
        Path(image).write_bytes(b"empty")
        return DiskImage(image, 5, 5, 0.0)

    monkeypatch.setattr(module.disk_image, "pack_golden", golden)
    monkeypatch.setattr(module.disk_image, "pack", empty)
    monkeypatch.setattr(module, "check_space", lambda *_: None)
    journal = Journal.open(NODE, tmp_path / "state", "run")
    places = (tmp_path / name for name in ("work", "sockets", "cache"))
    session = Session(NODE, gather(NODE), journal, None, None, *places)
    found = GuestDisks(session, Goldens(), Volumes(NODE, journal, None, str(tmp_path / "work")), Watcher())
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
    assert made == [(["bench"], Spaces("/srv/pgherd-temp/files", ("/srv/pgherd-space0/files",)))]
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
