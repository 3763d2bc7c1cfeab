import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pgherd.distributed import template_transfer
from pgherd.distributed.template_transfer import Manifest, TemplateReceiver, TemplateSender, TemplateTransfer
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import templates
from pgherd.postgres.installations import Installation
from pgherd.postgres.templates import SCHEMA, Template

NODE = LocalNode()
PG = Installation("/pg/bin", "18.6", 18, "system", "18.6 (here)")
FILES = {
    "PG_VERSION": b"18\n",
    "global/pg_control": b"\0control\xff" * 1000,
    "base/5/112": b"",
    "base/5/2600": bytes(range(256)) * 40,
    "pg_wal/000000010000000000000001": b"w" * 3000,
    "postgresql.auto.conf": b"",
}
PART = Trial.model_validate(
    {
        "point": {"databases": 1},
        "deployment": {"hosts": [{"name": "a", "containers": [{"name": "db", "servers": [{"bin": "/there/bin", "version": "18.6"}]}]}]},
        "phases": [{"loads": {}}],
    }
)


def made(cache, key="pg18.6-pgbench-10-0123456789ab", files=FILES, **changes):
    """A finished template."""
    home = Path(cache) / "golden" / key
    for path, data in files.items():
        (home / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (home / "data" / path).write_bytes(data)
    (home / "data/pg_tblspc").mkdir(parents=True)
    sizes = {"bytes": sum(map(len, files.values())), "databases": {"bench": 5}, "parts": {"bench": {"tables": 3, "indexes": 2}}}
    copy = Template(key, str(home), "18.6", ("pgbench-10",), True, made=5.0, seconds=9.0, **sizes)
    copy = replace(copy, **changes)
    (home / "golden.json").write_text(json.dumps({"schema": SCHEMA, **asdict(copy)}))
    return copy


def contents(data_dir):
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in Path(data_dir).rglob("*") if path.is_file()}


def sent(outgoing, most):
    loads = [outgoing.next(most)]
    while loads[-1].digest is None:
        loads.append(outgoing.next(most))
    return loads


def left(cache):
    return [name for name in os.listdir(cache / "golden") if name != ".locks"]


@pytest.fixture
def remote_cache(tmp_path):
    """The cache of another host."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


@pytest.fixture
def local_cache(tmp_path):
    """The cache of this host."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.mark.parametrize("maximum", [1000, 3000, 10**6])
def test_a_copy_comes_whole_and_under_the_same_key(remote_cache, local_cache, maximum):
    copy = made(remote_cache)
    outgoing = TemplateSender(copy, "same")
    incoming = TemplateReceiver(NODE, outgoing.manifest, str(local_cache), None)
    loads = sent(outgoing, maximum)
    assert all(len(load.data) <= maximum for load in loads) and len(loads) == max(1, -(-outgoing.manifest.bytes // maximum))
    for load in loads:
        assert templates.at(NODE, str(local_cache), copy.key) is None, "it is not there before it is whole"
        incoming.add(load.data)
    incoming.keep(loads[-1].digest)
    result = templates.at(NODE, str(local_cache), copy.key)
    assert contents(result.data_dir) == FILES and (Path(result.data_dir) / "pg_tblspc").is_dir()
    assert (result.key, result.databases, result.parts, result.made, result.seconds) == (copy.key, copy.databases, copy.parts, 5.0, 9.0)
    assert result.path == str(local_cache / "golden" / copy.key) and result.bytes > 0
    modes = {path.stat().st_mode & 0o777 for path in Path(result.data_dir).rglob("*")}
    assert modes == {0o600, 0o700} and Path(result.data_dir).stat().st_mode & 0o777 == 0o700
    assert left(local_cache) == [copy.key]


def being_made(cache, key):
    lock = cache / "golden/.locks" / key
    return lock.exists() and NODE.run(Command(["flock", "--exclusive", "--nonblock", str(lock), "true"])).code != 0


def test_what_is_not_what_was_sent_is_not_kept(remote_cache, local_cache):
    copy = made(remote_cache)
    for spoil in (
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),  # a bit
        lambda data: data[:-1],  # the end
    ):
        outgoing = TemplateSender(copy, "same")
        incoming = TemplateReceiver(NODE, outgoing.manifest, str(local_cache), None)
        (load,) = sent(outgoing, 10**6)
        incoming.add(spoil(load.data))
        with pytest.raises(TrialError, match=f"{copy.key} was not received as sent"):
            incoming.keep(load.digest)
        incoming.drop()
        assert left(local_cache) == [] and not being_made(local_cache, copy.key)
    incoming = TemplateReceiver(NODE, TemplateSender(copy, "same").manifest, str(local_cache), None)
    with pytest.raises(TrialError, match="has more bytes than announced"):
        incoming.add(load.data + b"x")
    incoming.drop()


def test_nobody_else_makes_it_while_it_comes(remote_cache, local_cache):
    copy = made(remote_cache)
    incoming = TemplateReceiver(NODE, TemplateSender(copy, "same").manifest, str(local_cache), None)
    assert being_made(local_cache, copy.key)
    incoming.drop()
    incoming.drop()
    assert not being_made(local_cache, copy.key) and left(local_cache) == []
    made(local_cache)
    with pytest.raises(TrialError, match="exists already"):
        TemplateReceiver(NODE, TemplateSender(copy, "same").manifest, str(local_cache), None)
    assert left(local_cache) == [copy.key] and not being_made(local_cache, copy.key)


def test_room_is_looked_at_first(remote_cache, local_cache):
    manifest = TemplateSender(made(remote_cache), "same").manifest
    with pytest.raises(CapabilityError, match="a template needs"):
        TemplateReceiver(NODE, replace(manifest, files=(*manifest.files, ("base/5/9", 2**60))), str(local_cache), None)
    assert left(local_cache) == []


PROPER = (("PG_VERSION", 3), ("global/pg_control", 3))


@pytest.mark.parametrize(
    ("directories", "files"),
    [
        (("global", "../evil"), PROPER),
        (("global", ".."), PROPER),
        (("global", "/etc"), PROPER),
        (("global", "base/5"), PROPER),
        (("global", "global"), PROPER),
        (("global", "a\0b"), PROPER),
        (("global",), (*PROPER, ("../evil", 3))),
        (("global",), (*PROPER, ("global/../../evil", 3))),
        (("global",), (*PROPER, ("/etc/passwd", 3))),
        (("global",), (*PROPER, ("PG_VERSION", 3))),
        (("global",), (*PROPER, ("global", 3))),
        (("global",), (*PROPER, (".", 3))),
        (("global",), (*PROPER, ("x", -1))),
        (("global",), (*PROPER, ("PG_VERSION/x", 1))),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(remote_cache, local_cache, directories, files):
    copy = made(remote_cache)
    with pytest.raises(TrialError, match="which is not in its data directory"):
        TemplateReceiver(NODE, Manifest(copy, "same", directories, files), str(local_cache), None)
    assert not (local_cache / "golden").exists() and sorted(path.name for path in local_cache.parent.iterdir()) == ["here", "there"]


def test_what_is_no_data_directory_is_refused(remote_cache, local_cache):
    with pytest.raises(TrialError, match="it lacks PG_VERSION or global/pg_control"):
        TemplateReceiver(NODE, Manifest(made(remote_cache), "same", ("global",), (("PG_VERSION", 3),)), str(local_cache), None)


def test_a_copy_with_links_or_one_that_changes_is_not_sent(remote_cache):
    copy = made(remote_cache)
    outgoing = TemplateSender(copy, "same")
    (Path(copy.data_dir) / "base/5/2600").write_bytes(b"short")
    with pytest.raises(OSError, match="base/5/2600 of the template shrank"):
        sent(outgoing, 10**6)
    os.symlink("/etc", Path(copy.data_dir) / "pg_tblspc/16385")
    with pytest.raises(TrialError, match="contains '16385', which is neither a file nor a directory"):
        TemplateSender(copy, "same")


@pytest.fixture
def carriers(remote_cache, local_cache, monkeypatch):
    """Two hosts whose PostgreSQL is the same, unless ``substances`` is changed; the first one has the copy that the part needs."""
    substances = {"/a/bin": "same", "/b/bin": "same"}
    monkeypatch.setattr(template_transfer, "substance", lambda node, installation: substances[installation.bin])
    a = TemplateTransfer(NODE, {"/there/bin": replace(PG, bin="/a/bin")}, str(remote_cache), None)
    b = TemplateTransfer(NODE, {"/there/bin": replace(PG, bin="/b/bin")}, str(local_cache), None)
    ((key, bin_),) = a.lacks(PART).items()
    assert bin_ == "/there/bin" and key.startswith("pg18.6-")
    made(remote_cache, key)
    a.substances = substances
    return a, b, key


def test_one_host_gives_another_what_it_lacks(carriers, local_cache):
    a, b, key = carriers
    assert a.lacks(PART) == {} and b.lacks(PART) == {key: "/there/bin"}
    assert a.has(b.lacks(PART)) == {key: 9.0} and b.has(b.lacks(PART)) == {}
    b.borrow(a.lend(key, "/there/bin"))
    load = a.piece()
    b.add(load.data)
    b.keep(load.digest)
    assert b.lacks(PART) == {} and contents(local_cache / "golden" / key / "data") == FILES
    a.drop()
    b.drop()
    assert b.has({key: ""}) == {key: 9.0}, "what was kept stays"
    for call in (a.piece, lambda: b.add(b""), lambda: b.keep("")):
        with pytest.raises(TrialError, match="no template is"):
            call()


def test_what_several_servers_contain_is_read_once(local_cache, monkeypatch):
    read, loaders = [], template_transfer.loaders
    monkeypatch.setattr(template_transfer, "loaders", lambda *arguments: read.append(arguments) or loaders(*arguments))
    server = {"bin": "/there/bin", "version": "18.6"}
    servers = [server, {**server, "settings": {"work_mem": "8MB"}}, {**server, "checksums": False}, server]
    containers = [{"name": f"db{number}", "servers": [one]} for number, one in enumerate(servers)]
    part = Trial.model_validate(
        {"point": {"databases": 4}, "deployment": {"hosts": [{"name": "a", "containers": containers}]}, "phases": [{"loads": {}}]}
    )
    assert len(TemplateTransfer(NODE, {"/there/bin": PG}, str(local_cache), None).lacks(part)) == 2 == len(read)


def test_a_copy_that_another_postgresql_made_is_not_taken(carriers, local_cache):
    a, b, key = carriers
    b.lacks(PART)
    for made_by, own in (("same", "other"), ("", ""), ("same", "")):
        a.substances |= {"/a/bin": made_by, "/b/bin": own}
        a._substances.clear()
        b._substances.clear()
        with pytest.raises(TrialError, match="was created with PostgreSQL files or libraries that differ from those here"):
            b.borrow(a.lend(key, "/there/bin"))
    assert not (local_cache / "golden").exists()


def test_a_copy_that_another_library_made_is_not_lent(carriers, remote_cache, monkeypatch):
    a, b, key = carriers
    b.lacks(PART)
    library = remote_cache / "libicu.so"
    library.write_text("upgraded since")
    monkeypatch.setattr(template_transfer, "decisive", lambda *_: [str(library)])
    with pytest.raises(TrialError, match=f"was installed after template {key} was created"):
        a.lend(key, "/there/bin")


def test_a_copy_that_nobody_asked_for_is_not_taken(carriers, remote_cache, local_cache):
    a, b, key = carriers
    manifest = a.lend(key, "/there/bin")
    with pytest.raises(TrialError, match=f"this host does not need template {key}"):
        b.borrow(manifest)
    b.lacks(PART)
    evil = replace(manifest, template=replace(manifest.template, key=f"../{key}"))
    with pytest.raises(TrialError, match="this host does not need"):
        b.borrow(evil)
    with pytest.raises(TrialError, match="is gone"):
        a.lend("../../elsewhere", "/there/bin")


def test_a_copy_that_is_made_here_already_is_not_taken(carriers, local_cache):
    a, b, key = carriers
    b.lacks(PART)
    with (
        templates.assembling(NODE, str(local_cache), key, 1, account=None),
        pytest.raises(TrialError, match="is being created by another process"),
    ):
        b.borrow(a.lend(key, "/there/bin"))
