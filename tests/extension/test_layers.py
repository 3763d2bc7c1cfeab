"""The order of pg_balloon's modules: who includes whom, whose word is whose, and how long they may be."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

EXTENSION = Path(__file__).parents[2] / "extension/pg_balloon"
SOURCES = sorted((EXTENSION / "src").glob("*.[ch]"))
MOST_LINES = 600
_INCLUDE = re.compile(r'^#include "([a-z_]+)\.h"$', re.M)
_DECLARED = re.compile(r"^extern\s[^;(]*?(\w+)(?:\(|;)", re.M)
BALLOON = ("buffers", "inflate", "prefetch")
"""What is behind the interface of actuator.h."""
FOREIGN = {"ClientAuthentication_hook"}
"""PostgreSQL's own, whose header cannot be included."""


def included(files: dict[str, str]) -> dict[str, set[str]]:
    """Module (a .c and a .h of one name) → modules of ours that it includes."""
    modules = {name.partition(".")[0] for name in files}
    result: dict[str, set[str]] = {module: set() for module in modules}
    for name, text in files.items():
        module = name.partition(".")[0]
        result[module] |= {other for other in _INCLUDE.findall(text) if other in modules and other != module}
    return result


def circle(files: dict[str, str]) -> list[str]:
    """Modules that include each other in a circle, or nothing."""
    try:
        TopologicalSorter(included(files)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_includes_point_in_one_direction():
    files = {path.name: path.read_text() for path in SOURCES}
    assert not circle(files)
    above = included(files)
    assert not [module for module in above if "pg_balloon" in above[module]], "the loader is included by nobody"
    pure = {"controller_constants", "kernel_text"}
    assert not [module for module in pure if above[module]], "they are pure C, and simulated or tested without a server"
    assert above["controller"] == {"controller_constants"}, "the same"
    assert above["memory_signals"] == {"kernel_text"} and above["rates"] == {"memory_signals"}, "the same"


def test_decisions_know_the_balloon_by_its_interface_only():
    """So that another mechanism can take its place."""
    above = included({path.name: path.read_text() for path in SOURCES})
    assert "actuator" in above["pg_balloon"]
    inside = {"buffers", "inflate", "prefetch"}
    assert not [name for name in ("pg_balloon", "controller", "observe", "sql_functions", "guc", "memory_signals") if above[name] & inside]


def test_a_circle_is_found():
    assert set(circle({"a.c": '#include "b.h"\n', "b.h": "", "b.c": '#include "postgres.h"\n#include "a.h"\n', "a.h": ""})) == {"a", "b"}
    assert not circle({"a.c": '#include "a.h"\n#include "b.h"\n', "a.h": "", "b.h": ""})


@pytest.mark.parametrize("header", [path for path in SOURCES if path.suffix == ".h"], ids=lambda path: path.name)
def test_what_a_header_declares_is_defined_beside_it(header: Path):
    declared = set(_DECLARED.findall(header.read_text()))
    if header.name in ("compat.h", "controller_constants.h"):
        assert not declared, "it has no file beside it"
        return
    files = [header.stem] if header.name != "actuator.h" else BALLOON
    text = "\n".join((EXTENSION / f"src/{name}.c").read_text() for name in files)
    assert declared, f"{header.name} declares nothing"
    assert not {name for name in declared if not re.search(rf"^(?:\w+\s[^;\n]*)?\b{name}\b(?: = [^;]*;|\(|\s*;)", text, re.M)}


@pytest.mark.parametrize("source", [path for path in SOURCES if path.suffix == ".c"], ids=lambda path: path.name)
def test_nothing_is_declared_past_the_headers(source: Path):
    declared = {name for name in _DECLARED.findall(source.read_text()) if name not in FOREIGN}
    assert not declared, f"{source.name} declares {', '.join(sorted(declared))} itself; include the header of whoever has it"


def test_none_is_long_and_all_are_built():
    assert not [path.name for path in SOURCES if len(path.read_text().splitlines()) > MOST_LINES]
    objects = re.search(r"^OBJS = (.*?)\n\n", (EXTENSION / "Makefile").read_text(), re.S | re.M)
    assert objects
    assert sorted(re.findall(r"src/(\w+)\.o", objects[1])) == sorted(path.stem for path in SOURCES if path.suffix == ".c")
