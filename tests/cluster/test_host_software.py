"""What a host is given, and what hosts run on, compared."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import platform
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pgherd import __version__
from pgherd.cluster import host_software

ROOT = Path(__file__).parents[2]


def test_the_roots_are_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["dependencies"]]
    names = {canonicalize_name(one.name) for one in asked} | {f"psycopg-{extra}" for one in asked for extra in one.extras}
    only_driver = {"lz4", "mimesis", "python-multipart", "starlette", "uvicorn"}  # the web page, and a study that has no cluster
    assert {canonicalize_name(name) for name in host_software.ROOTS} == names - only_driver and only_driver <= names


def test_requirements_are_exact_and_whole():
    wanted = host_software.requirements()
    names = {line.partition("==")[0] for line in wanted}
    assert {"click", "distributed", "dask", "tornado", "pydantic-core", "numpy", "cffi"} <= names and "pytest" not in names
    for line in wanted:
        name, _, version = line.partition("==")
        assert importlib.metadata.version(name) == version
    assert wanted == sorted(wanted)


def test_the_archive_is_laid_out_like_a_wheel():
    with tarfile.open(fileobj=io.BytesIO(host_software.archive())) as archive:
        names = archive.getnames()
    assert {"pgherd/__init__.py", "pgherd/cluster/agent_process.py", "pgherd/extension/pg_balloon/Makefile"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so") or not name.startswith("pgherd")]


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Two small packages as pip leaves them, of which the first needs the second; the files of the first can be forgotten."""
    for name, needs in (("one", "Requires-Dist: two\n"), ("two", "")):
        about = tmp_path / f"{name}-1.dist-info"
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}")
        files = (f"{name}/__init__.py", f"{name}/lib.so", f"{name}/__pycache__/x.pyc")
        for file in files:
            (tmp_path / file).write_text(name)
        outside = tmp_path.parent / f"{tmp_path.name}-bin"
        outside.mkdir(exist_ok=True)
        (outside / name).write_text("a program")
        (about / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"../{outside.name}/{name}", f"{name}/gone.py")))
        (tmp_path / name / "__init__.py").chmod(0o600)  # as under a umask of 077
        (tmp_path / name / "lib.so").chmod(0o700)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(host_software, "ROOTS", ("one",))
    return tmp_path


def test_libraries_are_laid_beside_each_other(installed):
    assert host_software.requirements() == ["one==1", "two==1"]
    with tarfile.open(fileobj=io.BytesIO(host_software.libraries())) as archive:
        entries = {entry.name: entry for entry in archive}
    assert set(entries) == {"one/__init__.py", "one/lib.so", "two/__init__.py", "two/lib.so"}
    assert entries["one/lib.so"].uid == 0
    assert (entries["one/lib.so"].mode, entries["one/__init__.py"].mode) == (0o755, 0o644), "another account can use them"


def test_libraries_that_do_not_tell_their_files_stay_here(installed):
    (installed / "two-1.dist-info/RECORD").unlink()
    assert host_software.libraries() == b"" and host_software.requirements() == ["one==1", "two==1"]


def test_modules_to_be_tried_are_compiled_ones_of_the_libraries():
    assert all(importlib.util.find_spec(name) for name in host_software.COMPILED) and host_software.kind().startswith("cpython-3")


def test_its_contents_are_its_files():
    with tarfile.open(fileobj=io.BytesIO(host_software.archive())) as archive:
        files = {entry.name for entry in archive if entry.isfile()}
    found = host_software.contents()
    assert list(found) == sorted(files) and found["pgherd/__init__.py"] == (ROOT / "src/pgherd/__init__.py").read_bytes()


def test_another_requirement_is_another_environment():
    assert host_software.environment_key(["a==1"]) == host_software.environment_key(["a==1"]) != host_software.environment_key(["a==2"])


SAME = {"pgherd": "1", "Python": "3.11", "Dask": "2", "source": "x", "PostgreSQL": "18.1", "kernel": "6", "architecture": "x86"}
SAME |= {"CPU": "c", "cores": "2"}


def test_equal_hosts_differ_in_nothing():
    assert host_software.compare({"a": SAME, "b": dict(SAME)}) == []


def test_differences_are_refused_or_listed():
    found = host_software.compare({"a": SAME, "b": {**SAME, "kernel": "5", "pgherd": "2"}, "c": {**SAME, "kernel": "5"}})
    assert [(one.what, one.refused) for one in found] == [("pgherd", True), ("kernel", False)]
    assert str(found[0]) == "pgherd: 1 on a, c; 2 on b" and found[1].values == {"6": ("a",), "5": ("b", "c")}


def test_what_a_host_does_not_say_is_unknown():
    (found,) = host_software.compare({"a": SAME, "b": {name: value for name, value in SAME.items() if name != "Dask"}})
    assert str(found) == "Dask: 2 on a; unknown on b" and found.refused


def test_this_machine():
    here = host_software.here()
    assert here["pgherd"] == __version__ and platform.python_version().startswith(here["Python"])
    assert set(here) == {*host_software.REFUSED, *host_software.LISTED} and len(here["source"]) == 12
    assert host_software.digest() == host_software.digest()


def test_all_that_a_host_is_sent_counts(monkeypatch):
    found = set()
    for contents in ({"a.c": b"1"}, {"a.c": b"2"}, {"b.c": b"1"}, {"a.c": b"1", "b.html": b""}):
        monkeypatch.setattr(host_software, "contents", lambda contents=contents: contents)
        found.add(host_software.digest())
    assert len(found) == 4
