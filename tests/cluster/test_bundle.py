"""What a host is given."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pgherd.cluster import bundle

ROOT = Path(__file__).parents[2]


def test_the_roots_are_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["dependencies"]]
    names = {canonicalize_name(one.name) for one in asked} | {f"psycopg-{extra}" for one in asked for extra in one.extras}
    only_driver = {"lz4", "mimesis", "python-multipart", "starlette", "uvicorn"}  # the web page, and a study that has no cluster
    assert {canonicalize_name(name) for name in bundle.ROOTS} == names - only_driver and only_driver <= names


def test_requirements_are_exact_and_whole():
    wanted = bundle.requirements()
    names = {line.partition("==")[0] for line in wanted}
    assert {"click", "distributed", "dask", "tornado", "pydantic-core", "numpy", "cffi"} <= names and "pytest" not in names
    for line in wanted:
        name, _, version = line.partition("==")
        assert importlib.metadata.version(name) == version
    assert wanted == sorted(wanted)


def test_the_archive_is_laid_out_like_a_wheel():
    with tarfile.open(fileobj=io.BytesIO(bundle.archive())) as archive:
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
    monkeypatch.setattr(bundle, "ROOTS", ("one",))
    return tmp_path


def test_libraries_are_laid_beside_each_other(installed):
    assert bundle.requirements() == ["one==1", "two==1"]
    with tarfile.open(fileobj=io.BytesIO(bundle.libraries())) as archive:
        entries = {entry.name: entry for entry in archive}
    assert set(entries) == {"one/__init__.py", "one/lib.so", "two/__init__.py", "two/lib.so"}
    assert entries["one/lib.so"].uid == 0
    assert (entries["one/lib.so"].mode, entries["one/__init__.py"].mode) == (0o755, 0o644), "another account can use them"


def test_libraries_that_do_not_tell_their_files_stay_here(installed):
    (installed / "two-1.dist-info/RECORD").unlink()
    assert bundle.libraries() == b"" and bundle.requirements() == ["one==1", "two==1"]


def test_modules_to_be_tried_are_compiled_ones_of_the_libraries():
    assert all(importlib.util.find_spec(name) for name in bundle.COMPILED) and bundle.kind().startswith("cpython-3")


def test_its_contents_are_its_files():
    with tarfile.open(fileobj=io.BytesIO(bundle.archive())) as archive:
        files = {entry.name for entry in archive if entry.isfile()}
    found = bundle.contents()
    assert list(found) == sorted(files) and found["pgherd/__init__.py"] == (ROOT / "src/pgherd/__init__.py").read_bytes()


def test_another_requirement_is_another_environment():
    assert bundle.key(["a==1"]) == bundle.key(["a==1"]) != bundle.key(["a==2"])
