import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Deployment, Host, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.runner.deploy import volumes as module
from pgherd.runner.deploy.volumes import Volumes, check_directory, same_device, used_by, wal_bytes, wal_directories

NODE = LocalNode()
GB = 2**30


@pytest.fixture
def journal(tmp_path):
    journal = Journal.open(NODE, tmp_path / "state", "run")
    yield journal
    journal.close()


@pytest.fixture
def theirs(tmp_path):
    """Somebody's directory with something in it."""
    path = tmp_path / "wal disk"
    path.mkdir()
    (path / "precious").write_text("do not touch")
    return path


def cluster(tmp_path, name):
    (tmp_path / name / "pg_wal").mkdir(parents=True)
    (tmp_path / name / "pg_wal" / "1").write_text(name)
    return str(tmp_path / name)


def volume(place):
    return {"wal": Volume(name="wal", path=str(place))}


def test_servers_lie_apart_in_one_directory_that_goes_with_the_run(tmp_path, journal, theirs):
    volumes = Volumes(NODE, journal, None)
    created = [volumes.place(volume(theirs), cluster(tmp_path, name), f"00{name}") for name in ("1", "2")]
    (root,) = set(theirs.iterdir()) - {theirs / "precious"}
    assert [location for item in created for location in item] == [str(root / "001"), str(root / "002")]
    assert (tmp_path / "2" / "pg_wal" / "1").read_text() == "2" and (tmp_path / "2" / "pg_wal").is_symlink()
    assert (root / "001").stat().st_mode & 0o777 == 0o711
    volumes.remove(created[0])
    assert not (root / "001").exists() and (root / "002" / "pg_wal" / "1").exists()
    journal.play()
    assert os.listdir(theirs) == ["precious"]


def test_a_move_that_fails_leaves_nothing_of_the_server(tmp_path, journal, theirs, monkeypatch):
    def full(*_):
        raise TrialError("no space left")

    monkeypatch.setattr(module.disk_space, "move_wal", full)
    with pytest.raises(TrialError, match="no space"):
        Volumes(NODE, journal, None).place(volume(theirs), cluster(tmp_path, "1"), "001")
    assert not list(theirs.glob("*/001"))


def test_a_volume_that_has_gone_is_not_made(tmp_path, journal):
    with pytest.raises(CapabilityError, match="is gone"):
        Volumes(NODE, journal, None).place(volume(tmp_path / "gone"), cluster(tmp_path, "1"), "001")
    assert not (tmp_path / "gone").exists()


def test_a_volume_that_names_no_directory_is_refused(tmp_path, journal):
    with pytest.raises(UsageError, match="volume 'v' has no directory, so it cannot hold a server's wal"):
        Volumes(NODE, journal, None).place({"wal": Volume(name="v")}, cluster(tmp_path, "1"), "001")


def test_data_and_directories_for_tablespaces_lie_with_the_server(tmp_path, journal, theirs):
    volumes = Volumes(NODE, journal, None)
    volume = Volume(name="v", path=str(theirs))
    home = volumes.home(volume, "001")
    data = cluster(tmp_path, "1")
    created = volumes.place({"data": volume, "temp": volume}, data, "001", [volume])
    assert set(created) == {home} and {"temp", "space"} <= set(os.listdir(home))
    volumes.remove(created)
    assert not os.path.exists(home)


def test_tablespaces_are_made_once(tmp_path, journal, theirs, monkeypatch):
    created = []
    monkeypatch.setattr(module, "create", lambda instance, databases, spaces: created.append((databases, spaces)))
    volumes = Volumes(NODE, journal, None)
    volume = Volume(name="v", path=str(theirs))
    data = cluster(tmp_path, "1")
    volumes.place({"temp": volume}, data, "001")
    server = SimpleNamespace(data_dir=data)
    volumes.populate(server, ["bench"])
    volumes.populate(server, ["bench"])
    assert len(created) == 1 and created[0][1].temp.endswith("/001/temp") and created[0][1].data == ()


def test_a_loads_directory_is_the_same_for_every_trial(tmp_path, journal, theirs):
    volumes = Volumes(NODE, journal, None)
    volume = Volume(name="v", path=str(theirs))
    assert volumes.directory(volume) == volumes.directory(volume) and os.path.isdir(volumes.directory(volume))
    volumes.check()
    journal.play()
    assert os.listdir(theirs) == ["precious"]


def test_loops_and_devices_are_made_once_below_the_runs_own_directory(tmp_path, journal, monkeypatch):
    created = []

    def mounted(node, journal, home, name, what):
        created.append((home, name, what))
        os.makedirs(f"{home}/{name}")
        return f"{home}/{name}"

    monkeypatch.setattr(module.file_systems, "make_loop", mounted)
    monkeypatch.setattr(module.file_systems, "make_on_device", mounted)
    (tmp_path / "work").mkdir()
    volumes = Volumes(NODE, journal, None, str(tmp_path / "work"))
    loop, device = Volume(name="l", kind="loop", size=2**27), Volume(name="d", kind="device", path="/dev/x")
    for _ in range(2):
        volumes.directory(loop)
        volumes.directory(device)
    assert [(name, description) for _, name, description in created] == [("l", 2**27), ("d", "/dev/x")]
    assert all(home.startswith(f"{tmp_path}/work/pgherd-volume-") for home, _, _ in created)
    with pytest.raises(TrialError, match="nothing is mounted at"):
        volumes.check()


def test_a_good_directory_is_left_as_it_is(theirs):
    check_directory(NODE, str(theirs), None, 1)
    assert os.listdir(theirs) == ["precious"]


def test_a_bad_directory_is_refused_with_what_to_do(tmp_path, theirs, monkeypatch):
    with pytest.raises(UsageError, match="nowhere does not exist; create it"):
        check_directory(NODE, str(tmp_path / "nowhere"), None, 1)
    with pytest.raises(UsageError, match="precious is not a directory"):
        check_directory(NODE, str(theirs / "precious"), None, 1)
    with pytest.raises(UsageError, match=r"MB free|GB free|TB free.*make room"):
        check_directory(NODE, str(theirs), None, 2**60)
    monkeypatch.setattr(module.paths, "unreachable", lambda path, account: "/private" if account else None)
    with pytest.raises(CapabilityError, match="servers run as 'pgherd', which cannot enter /private"):
        check_directory(NODE, str(theirs), "pgherd", 1)

    class ReadOnly(LocalNode):
        def run(self, command, timeout=60.0):
            return Completed(1, "", "") if "-w" in command.argv else super().run(command, timeout)

    with pytest.raises(CapabilityError, match="cannot be written to"):
        check_directory(ReadOnly(), str(theirs), None, 1)


def test_room_for_what_is_written():
    assert wal_bytes(3, read_only=False) - wal_bytes(3, read_only=True) == 3 * GB
    assert wal_bytes(2, read_only=True) == 2 * wal_bytes(1, read_only=True) > 0


def test_file_systems_are_told_apart(tmp_path):
    assert same_device(NODE, str(tmp_path), str(tmp_path / "not" / "yet"))
    assert not same_device(NODE, "/proc", str(tmp_path))


def test_volumes_by_role():
    wal, other = Volume(name="fast", path="/fast"), Volume(name="slow", path="/slow")
    server = Server(bin="/pg", version="18", volumes={"wal": "fast"})
    deployment = Deployment(hosts=(Host(containers=(Container(name="a", servers=(server,)),)),), volumes=(other, wal))
    assert used_by(server, deployment) == {"wal": wal}


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


@AS_ROOT
def test_the_servers_user_owns_the_leaves_only(place, tmp_path):
    """Otherwise it could exchange a directory for a link before root creates the next one in it."""
    journal = Journal.open(NODE, tmp_path / "state", "run")
    (place / "v").mkdir()
    volumes = Volumes(NODE, journal, "nobody")
    volume = Volume(name="v", path=str(place / "v"))
    home = volumes.home(volume, "001")
    data = cluster(place, "1")
    created = volumes.place({"data": volume, "temp": volume, "wal": volume}, data, "001", [volume])
    assert {location.owner() for location in (Path(home), Path(home).parent)} == {"root"}
    assert {(Path(home) / name).owner() for name in ("temp", "space")} == {"nobody"}
    assert wal_directories(created) == [f"{home}/pg_wal"]
    attack = ["setpriv", "--reuid=65534", "--clear-groups", "mv", f"{home}/temp", f"{home}/other"]
    assert subprocess.run(attack, capture_output=True).returncode != 0
    journal.play()
    journal.close()


@AS_ROOT
@pytest.mark.parametrize(("owner", "mode", "refused"), [(0, 0o755, False), (65534, 0o755, True), (0, 0o777, True), (0, 0o1777, False)])
def test_root_takes_no_volume_in_which_others_can_exchange_files(place, owner, mode, refused):
    directory = place / "v"
    directory.mkdir()
    directory.chmod(mode)
    os.chown(directory, owner, owner)
    if not refused:
        assert check_directory(NODE, str(directory), None, 0) > 0
        return
    with pytest.raises(CapabilityError, match="belongs to another user, or others may write to it"):
        check_directory(NODE, str(directory), None, 0)
