"""Keys, metadata, locks and removal of templates. tests/it/test_golden.py creates real ones."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import templates
from pgherd.postgres.installations import Installation
from pgherd.postgres.templates import SCHEMA, Template, ensure, find, key_of, list_all, needed_bytes, prune

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
V15 = Installation("/x/bin", "15.18", 15, "system", "15.18 (Debian 15.18-0+deb12u1)")


@dataclass(frozen=True)
class Known:
    """Loader that is never called."""

    database: str = "bench"
    identity: str = "pgbench-10"
    size_estimate: int | None = 10**8
    settings: Mapping[str, str] = field(default_factory=dict)

    def load(self, target: object, say: object = None) -> None:
        raise AssertionError("unexpected load")


def make(cache: Path, key: str, **changes) -> Template:
    """Finished template with metadata and without data."""
    home = cache / "golden" / key
    (home / "data").mkdir(parents=True)
    template = Template(key, str(home), "15.18", ("pgbench-10",), False, 10**8, {"bench": 10**8}, 1.0, 2.0, parts={})
    (home / "golden.json").write_text(json.dumps({"schema": SCHEMA, **asdict(replace(template, **changes))}))
    return replace(template, **changes)


def test_whatever_decides_the_contents_decides_the_key() -> None:
    base = key_of(V15, [Known()], False)
    assert base == key_of(replace(V15, bin="/elsewhere/bin"), [Known(size_estimate=None)], False)
    others = [
        key_of(V15, [Known()], True),
        key_of(replace(V15, build="15.18 (Debian 15.18-1)"), [Known()], False),
        key_of(V15, [Known(identity="pgbench-11")], False),
        key_of(V15, [Known(database="other")], False),
        key_of(V15, [Known(), Known(database="b2")], False),
        key_of(V15, [], False),
    ]
    assert len({base, *others}) == 7
    assert base.startswith("pg15.18-pgbench-10-")


def test_the_key_is_a_plain_directory_name() -> None:
    key = key_of(V15, [Known(identity="script-10-../../x y" + "z" * 200)], False)
    assert os.path.basename(key) == key
    assert len(key) < 100
    assert " " not in key


def test_what_was_made_is_found(node: LocalNode, tmp_path: Path) -> None:
    assert find(node, V15, [Known()], str(tmp_path)) is None
    template = make(tmp_path, key_of(V15, [Known()], False))
    assert find(node, V15, [Known()], str(tmp_path)) == template
    assert find(node, V15, [Known()], str(tmp_path), checksums=True) is None
    assert ensure(node, V15, [Known()], account=None, cache_dir=str(tmp_path), socket_dir="/nowhere") == template
    assert template.data_dir == str(tmp_path / "golden" / template.key / "data")


def test_a_cache_that_was_moved_is_believed_where_it_lies(node: LocalNode, tmp_path: Path) -> None:
    key = key_of(V15, [Known()], False)
    make(tmp_path, key, path="/where/it/was/made")
    template = find(node, V15, [Known()], str(tmp_path))
    assert template is not None
    assert template.path == str(tmp_path / "golden" / key)


@pytest.mark.parametrize("marker", [None, "", "{", "[]", '{"schema": "pgherd/golden/1"}', '{"schema": "pgherd/golden/99"}'])
def test_a_copy_without_a_readable_marker_is_none(node: LocalNode, tmp_path: Path, marker: str | None) -> None:
    key = key_of(V15, [Known()], False)
    make(tmp_path, key)
    path = tmp_path / "golden" / key / "golden.json"
    path.unlink() if marker is None else path.write_text(marker)
    assert find(node, V15, [Known()], str(tmp_path)) is None
    assert list_all(node, str(tmp_path)) == []


def test_needed_bytes_cover_what_is_known() -> None:
    assert needed_bytes([Known(), Known()]) > 2 * 10**8
    assert needed_bytes([Known(size_estimate=None)]) > 0


def test_too_little_disk_is_said_before_anything_is_made(node: LocalNode, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="a template needs .* TB"):
        ensure(node, V15, [Known(size_estimate=2**60)], account=None, cache_dir=str(tmp_path), socket_dir="/nowhere")
    assert [name for name in os.listdir(tmp_path / "golden") if name != ".locks"] == []


def test_list_and_prune(node: LocalNode, tmp_path: Path) -> None:
    assert list_all(node, str(tmp_path)) == []
    assert prune(node, str(tmp_path)) == []
    old, new = make(tmp_path, "pg15-a-0123456789ab", made=5.0), make(tmp_path, "pg15-b-0123456789ab", made=4.0)
    (tmp_path / "golden/.unfinished-pg15-c-0123456789ab-01234567").mkdir()
    (tmp_path / "golden/.lock-pg15-d-0123456789ab").touch()  # as earlier versions left them
    assert list_all(node, str(tmp_path)) == [new, old]
    assert prune(node, str(tmp_path), keep=[new.key]) == [
        ".lock-pg15-d-0123456789ab",
        ".unfinished-pg15-c-0123456789ab-01234567",
        old.key,
    ]
    assert list_all(node, str(tmp_path)) == [new] and sorted(os.listdir(tmp_path / "golden")) == [".locks", new.key]


def test_prune_leaves_alone_what_is_being_made(node: LocalNode, tmp_path: Path) -> None:
    key = "pg15-c-0123456789ab"
    unfinished = tmp_path / f"golden/.unfinished-{key}-01234567"
    unfinished.mkdir(parents=True)
    (tmp_path / "golden/.locks").mkdir(mode=0o700)
    with templates._locked(node, str(tmp_path / f"golden/.locks/{key}"), lambda line: None):
        assert prune(node, str(tmp_path)) == []
    assert unfinished.exists()
    assert prune(node, str(tmp_path)) == [unfinished.name]


def test_the_lock_excludes_and_ends(node: LocalNode, tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    messages: list[str] = []
    with templates._locked(node, lock, messages.append):
        assert node.run(Command(["flock", "--nonblock", lock, "true"])).code == 1
    assert node.run(Command(["flock", "--nonblock", lock, "true"])).code == 0
    assert messages == []
    with pytest.raises(CapabilityError, match="cannot be locked"), templates._locked(node, str(tmp_path / "no/such/lock"), messages.append):
        pass


def test_what_is_put_together_elsewhere_comes_to_be_whole_or_not_at_all(node: LocalNode, tmp_path: Path) -> None:
    key = key_of(V15, [Known()], False)
    template = make(tmp_path / "other", key)
    with pytest.raises(OSError, match="full"), templates.assembling(node, str(tmp_path), key, 1, account=None) as unfinished:
        assert unfinished is not None
        with (
            pytest.raises(TrialError, match=f"{key} is being created by another process"),
            templates.assembling(node, str(tmp_path), key, 1, account=None, made_here=False),
        ):
            raise AssertionError("two builders at once")
        raise OSError("full")
    assert os.listdir(tmp_path / "golden") == [".locks"]
    with templates.assembling(node, str(tmp_path), key, 1, account=None) as unfinished:
        assert unfinished is not None
        os.mkdir(os.path.join(unfinished, "data"), 0o700)
        templates.seal(node, unfinished, template)
        assert templates.at(node, str(tmp_path), key) is None, "it must not exist before the end"
    assert templates.at(node, str(tmp_path), key) == replace(template, path=str(tmp_path / "golden" / key))
    with templates.assembling(node, str(tmp_path), key, 1, account=None) as unfinished:
        assert unfinished is None, "it exists already"
    with pytest.raises(CapabilityError, match="a template needs"), templates.assembling(node, str(tmp_path), "k", 2**60, account=None):
        raise AssertionError("the disk space does not suffice")


ATTACKER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


def as_nobody(*argv: object) -> int:
    """Run a command as the servers' user would, and return its exit code."""
    return subprocess.run([*ATTACKER, *map(str, argv)], capture_output=True, timeout=30).returncode


@as_root
def test_the_servers_user_cannot_lay_a_link_beside_the_data_while_they_are_loaded(node: LocalNode, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("kept")
    with templates.assembling(node, str(place), "k", 1, account="nobody") as unfinished:
        assert unfinished is not None
        data = os.path.join(unfinished, "data")
        node.make_dir(data, user="nobody")
        assert as_nobody("touch", f"{data}/1") == 0, "the server can write its data"
        assert as_nobody("ln", "-s", victim, f"{unfinished}/golden.json") != 0
        assert as_nobody("ln", "-s", victim, f"{unfinished}/log") != 0
        assert as_nobody("mv", data, f"{unfinished}/other") != 0
        os.symlink(victim, os.path.join(unfinished, "golden.json"))
        with pytest.raises(OSError, match="symbolic links"):
            templates.seal(node, unfinished, Template("k", unfinished, "15", (), False, 1, {}, 1.0, 1.0, parts={}))
    assert victim.read_text() == "kept"


@as_root
@pytest.mark.parametrize("exchanged", ["home", "data", "link", "writable"])
def test_a_template_that_another_user_can_change_is_not_used(node: LocalNode, place: Path, exchanged: str) -> None:
    key = key_of(V15, [Known()], False)
    make(place, key)
    home = place / "golden" / key
    assert find(node, V15, [Known()], str(place)) is not None
    if exchanged == "link":
        (home / "data").rmdir()
        (home / "data").symlink_to("/etc")
    elif exchanged == "writable":
        home.chmod(0o777)
    else:
        os.chown(home if exchanged == "home" else home / "data", 65534, 65534)
    assert find(node, V15, [Known()], str(place)) is None
    assert list_all(node, str(place)) == []


@as_root
def test_nobody_else_can_hold_the_lock(node: LocalNode, place: Path) -> None:
    with templates.assembling(node, str(place), "k", 1, account="nobody"):
        lock = place / "golden/.locks/k"
        assert lock.exists()
    assert as_nobody("flock", "--nonblock", lock, "true") != 0
    assert as_nobody("flock", "--nonblock", place / "golden/.locks", "true") != 0
    assert subprocess.run(["flock", "--nonblock", lock, "true"]).returncode == 0
