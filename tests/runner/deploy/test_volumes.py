import os
from types import SimpleNamespace

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Deployment, Host, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.runner.deploy import volumes as module
from pgherd.runner.deploy.volumes import Volumes, check_directory, same_device, used_by, wal_bytes

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
    place = tmp_path / "wal disk"
    place.mkdir()
    (place / "precious").write_text("do not touch")
    return place


def cluster(tmp_path, name):
    (tmp_path / name / "pg_wal").mkdir(parents=True)
    (tmp_path / name / "pg_wal" / "1").write_text(name)
    return str(tmp_path / name)


def volume(place):
    return {"wal": Volume(name="wal", path=str(place))}


def test_servers_lie_apart_in_one_directory_that_goes_with_the_run(tmp_path, journal, theirs):
    volumes = Volumes(NODE, journal, None)
    made = [volumes.place(volume(theirs), cluster(tmp_path, name), f"00{name}") for name in ("1", "2")]
    (root,) = set(theirs.iterdir()) - {theirs / "precious"}
    assert [place for one in made for place in one] == [str(root / "001"), str(root / "002")]
    assert (tmp_path / "2" / "pg_wal" / "1").read_text() == "2" and (tmp_path / "2" / "pg_wal").is_symlink()
    assert (root / "001").stat().st_mode & 0o777 == 0o700
    volumes.remove(made[0])
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
    one = Volume(name="v", path=str(theirs))
    home = volumes.home(one, "001")
    data = cluster(tmp_path, "1")
    made = volumes.place({"data": one, "temp": one}, data, "001", [one])
    assert set(made) == {home} and {"temp", "space"} <= set(os.listdir(home))
    volumes.remove(made)
    assert not os.path.exists(home)


def test_tablespaces_are_made_once(tmp_path, journal, theirs, monkeypatch):
    made = []
    monkeypatch.setattr(module, "create", lambda instance, databases, spaces: made.append((databases, spaces)))
    volumes = Volumes(NODE, journal, None)
    one = Volume(name="v", path=str(theirs))
    data = cluster(tmp_path, "1")
    volumes.place({"temp": one}, data, "001")
    server = SimpleNamespace(data_dir=data)
    volumes.populate(server, ["bench"])
    volumes.populate(server, ["bench"])
    assert len(made) == 1 and made[0][1].temp.endswith("/001/temp") and made[0][1].data == ()


def test_a_loads_directory_is_the_same_for_every_trial(tmp_path, journal, theirs):
    volumes = Volumes(NODE, journal, None)
    one = Volume(name="v", path=str(theirs))
    assert volumes.directory(one) == volumes.directory(one) and os.path.isdir(volumes.directory(one))
    volumes.check()
    journal.play()
    assert os.listdir(theirs) == ["precious"]


def test_loops_and_devices_are_made_once_below_the_runs_own_directory(tmp_path, journal, monkeypatch):
    made = []

    def mounted(node, journal, home, name, what):
        made.append((home, name, what))
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
    assert [(name, what) for _, name, what in made] == [("l", 2**27), ("d", "/dev/x")]
    assert all(home.startswith(f"{tmp_path}/work/pgherd-volume-") for home, _, _ in made)
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
