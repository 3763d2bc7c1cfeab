"""What a host is given."""

from __future__ import annotations

import importlib.metadata
import io
import tarfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pgherd.cluster import packing

ROOT = Path(__file__).parents[2]


def test_the_roots_are_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["dependencies"] + project["optional-dependencies"]["cluster"]]
    names = {canonicalize_name(one.name) for one in asked} | {f"psycopg-{extra}" for one in asked for extra in one.extras}
    assert {canonicalize_name(name) for name in packing.ROOTS} == names


def test_requirements_are_exact_and_whole():
    wanted = packing.requirements()
    names = {line.partition("==")[0] for line in wanted}
    assert {"click", "distributed", "dask", "tornado", "pydantic-core", "numpy", "cffi"} <= names and "pytest" not in names
    for line in wanted:
        name, _, version = line.partition("==")
        assert importlib.metadata.version(name) == version
    assert wanted == sorted(wanted)


def test_the_archive_is_laid_out_like_a_wheel():
    with tarfile.open(fileobj=io.BytesIO(packing.archive())) as archive:
        names = archive.getnames()
    assert {"pgherd/__init__.py", "pgherd/cluster/agent_process.py", "pgherd/extension/pg_balloon/Makefile"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so") or not name.startswith("pgherd")]


def test_its_contents_are_its_files():
    with tarfile.open(fileobj=io.BytesIO(packing.archive())) as archive:
        files = {entry.name for entry in archive if entry.isfile()}
    found = packing.contents()
    assert list(found) == sorted(files) and found["pgherd/__init__.py"] == (ROOT / "src/pgherd/__init__.py").read_bytes()


def test_another_requirement_is_another_environment():
    assert packing.key(["a==1"]) == packing.key(["a==1"]) != packing.key(["a==2"])
