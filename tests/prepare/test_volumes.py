"""Where parts of servers lie, as asked for, and what is refused before anything is begun."""

import os
from dataclasses import replace

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare.volumes import ServerVolumes, check_volumes, choose_volumes, look

NODE = LocalNode()
NEEDED = {"data": 2**20, "wal": 2**20, "temp": 2**20, "tablespace": 2**21}


@pytest.fixture
def places(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    return tmp_path


def asked(tablespace_volume=(), allow_format=(), **by_role):
    return choose_volumes({name.removesuffix("_volume"): text for name, text in by_role.items()}, tablespace_volume, allow_format)


def test_nothing_asked_is_nothing_looked_at():
    assert check_volumes(NODE, asked(), None, NEEDED) == ServerVolumes()


@pytest.mark.usefixtures("own_directories")
def test_each_role_has_its_volume_and_the_same_text_is_the_same_volume(places):
    a, b = str(places / "a"), str(places / "b")
    found = check_volumes(NODE, asked(data_volume=a, wal_volume=b, temp_volume=b, tablespace_volume=(a, str(places / "c"))), None, NEEDED)
    assert [(one.name, one.path) for one in found.volumes] == [("on-data", a), ("on-wal", b), ("space1", str(places / "c"))]
    assert found.roles == {"data": "on-data", "wal": "on-wal", "temp": "on-wal"} and found.tablespaces == ("on-data", "space1")
    assert "servers' WAL and servers' temporary files in a private directory below" in found.changes[1]
    assert found.confirm == () and found.typed == () and len(found.choices) >= 3
    assert not any(list(place.iterdir()) for place in places.iterdir()), "nothing is made"


@pytest.mark.usefixtures("own_directories")
def test_a_loop_volume_is_marked_and_confirmed(places):
    if os.geteuid() != 0:
        pytest.skip("loop volumes need root")
    found = check_volumes(NODE, asked(wal_volume=f"loop:128MB@{places / 'a'}"), None, NEEDED)
    assert found.confirm == found.changes and any("distorts" in said for said in found.choices)


@pytest.mark.usefixtures("own_directories")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data_volume": "/nonexistent"}, "/nonexistent does not exist"),
        ({"wal_volume": "device:/dev/pgherd-none"}, "add --allow-format /dev/pgherd-none"),
        ({"allow_format": ("/dev/sdz",)}, "no volume option names device:/dev/sdz"),
        ({"wal_volume": "x=/tmp", "data_volume": "x=/var"}, "two volumes are called 'x'"),
        ({"tablespace_volume": ("/tmp", "/tmp")}, "names a volume twice"),
        ({"data_volume": "loop:64MB", "wal_volume": "loop:much"}, "'much' is no size"),
    ],
)
def test_what_cannot_be_is_said(changes, said):
    with pytest.raises(UsageError, match=said):
        check_volumes(NODE, asked(**changes), None, NEEDED)


def test_too_small_is_said_with_both_sizes(places):
    with pytest.raises((UsageError, CapabilityError), match="has 64 MB, but servers' data may need 1 TB|needs root"):
        check_volumes(NODE, asked(data_volume=f"loop:64MB@{places / 'a'}"), None, {"data": 2**40})
    with pytest.raises(UsageError, match="servers' WAL may need 1024 TB|servers' WAL may need"):
        check_volumes(NODE, asked(wal_volume=str(places / "a")), None, {"wal": 2**50})


@pytest.mark.usefixtures("own_directories")
def test_what_lies_on_volumes_can_be_looked_at_on_another_host(places, monkeypatch):
    a, b = str(places / "a"), str(places / "b")
    held = check_volumes(NODE, asked(data_volume=a, wal_volume=b, temp_volume=b), None, NEEDED).holds
    assert [(one.volume.path, one.words, one.bytes) for one in held] == [
        (a, "servers' data", 2**20),
        (b, "servers' WAL and servers' temporary files", 2**21),
    ]
    assert [held[1].part(number, 3).bytes for number in (1, 2, 3)] == [699051, 1398102, 2**21]
    assert look(NODE, held[0], None).endswith(f"below {a}")
    (places / "a").rmdir()
    with pytest.raises(UsageError, match=f"^volume {a} does not exist; create it"):
        look(NODE, held[0], None)
    with pytest.raises(UsageError, match=f"^volume {b} has .* free, but servers' WAL and servers' temporary files may need"):
        look(NODE, replace(held[1], bytes=2**60), None)


def test_the_volumes_of_a_request_without_a_look():
    requested = asked(data_volume="/x", tablespace_volume=("/y", "z=/z"))
    assert requested.roles["data"].path == "/x" and [one.name for one in requested.tablespaces] == ["space0", "z"]
