"""The extension's documents match the code: parameters and defaults, functions, columns, files, versions, metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

EXTENSION = Path(__file__).parents[2] / "extension/pg_balloon"
README, DESIGN, REFERENCE = ((EXTENSION / f"{name}.md").read_text() for name in ("README", "DESIGN", "REFERENCE"))
SCRIPT = (EXTENSION / "pg_balloon--1.0.sql").read_text()
SECONDS = {"s": 1.0, "ms": 0.001}


def documented() -> dict[str, str]:
    """Setting (without pg_balloon.) → its default, as the table has it; a row may name several."""
    result = {}
    for names, defaults in re.findall(r"^\| (`pg_balloon\.\w+`(?:, `\.\w+`)*) \| ([^|]+?) \|", REFERENCE, re.M):
        settings = [name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", names)]
        values = [value.strip() for value in defaults.split(",")]
        unit = values[-1].partition(" ")[2]
        result |= {name: value if " " in value or not unit else f"{value} {unit}" for name, value in zip(settings, values, strict=True)}
    return result


def declared() -> dict[str, str]:
    """The same of the server, as the regression tests expect it: boot_val with its unit."""
    expected = (EXTENSION / "expected/interface.out").read_text()
    rows = re.findall(r"^ pg_balloon\.(\w+) +\| (\w*) +\| sighup +\| \w+ +\| (\S+)$", expected, re.M)
    return {name: f"{value} {unit}".strip() for name, unit, value in rows}


def same(said: str, value: str) -> bool:
    """Whether two defaults are one: '5 s' is '5000 ms', and -1 needs no unit."""
    (number, _, unit), (other, _, other_unit) = said.partition(" "), value.partition(" ")
    if unit in SECONDS and other_unit in SECONDS:
        return float(number) * SECONDS[unit] == pytest.approx(float(other) * SECONDS[other_unit])
    return number == other and (unit == other_unit or number == "-1")


def test_every_setting_has_its_default_there():
    assert sorted(documented()) == sorted(declared())
    assert not {name: (message, declared()[name]) for name, message in documented().items() if not same(message, declared()[name])}


def test_another_default_would_be_seen():
    assert same("5 s", "5000 ms") and same("-1", "-1 kB") and not same("3", "5") and not same("32 MB", "32 kB")


def test_every_function_is_there():
    created = set(re.findall(r"^CREATE (?:FUNCTION|VIEW) (\w+)", SCRIPT, re.M))
    created.remove("pg_balloon_counters")  # behind the view
    assert created and all(re.search(rf"^\| `{name}\b", REFERENCE, re.M) for name in created), created


def test_every_column_is_there():
    for function, head in (
        ("pg_balloon_status", "Columns of `pg_balloon_status()`"),
        ("pg_balloon_counters", "Columns of `pg_stat_balloon`"),
    ):
        (body,) = re.findall(rf"^CREATE FUNCTION {function}\((.*?)\n    AS", SCRIPT, re.M | re.S)
        columns = re.findall(r"^    OUT (\w+) ", body, re.M)
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", REFERENCE.partition(head)[2].partition("\n\n")[2].partition("\n\n")[0], re.M)
        assert sorted(columns) == sorted(name for row in rows for name in re.findall(r"\w+", row))


def test_what_they_name_is_there():
    both = README + DESIGN
    files = set(re.findall(r"`((?:tests|benchmarks|environment)/[\w/.-]+)`", both))
    assert files and not [file for file in files if not (EXTENSION.parents[1] / file).exists()]
    named = set(re.findall(r"\b(\w+\.[ch])\b", both))
    assert named and not [name for name in named if not (EXTENSION / "src" / name).exists()]
    assert named >= {path.name for path in (EXTENSION / "src").glob("*.c")}, "DESIGN.md lists all of them"


def test_every_constant_of_the_controller_was_halved_and_doubled():
    constants = set(re.findall(r"^#define (\w+) \S", (EXTENSION / "src/controller_constants.h").read_text(), re.M))
    settings = json.loads((EXTENSION.parents[1] / "benchmarks/results/controller_constants.json").read_text())["settings"]
    assert constants == {*settings["effects"], *settings["without effect"]}, "run benchmarks/controller_constants.py"


def test_the_license_and_the_metadata_are_there():
    version = re.search(r"^default_version = '(.*)'$", (EXTENSION / "pg_balloon.control").read_text(), re.M)
    metadata = json.loads((EXTENSION / "META.json").read_text())
    assert version and metadata["version"] == metadata["provides"]["pg_balloon"]["version"] == f"{version[1]}.0"
    assert (EXTENSION / metadata["provides"]["pg_balloon"]["file"]).exists()
    holder = "Copyright (c) 2026, pgherd maintainers"
    assert holder in (EXTENSION / "LICENSE").read_text()
    assert not [path.name for path in (EXTENSION / "src").glob("*.[ch]") if holder not in path.read_text()[:4000]]


def test_the_versions_are_those_that_the_compiler_takes():
    compat = (EXTENSION / "src/compat.h").read_text()
    ((minimum, beyond),) = re.findall(r"^#if PG_VERSION_NUM < (\d+)0000 \|\| PG_VERSION_NUM >= (\d+)0000$", compat, re.M)
    assert f"PostgreSQL {minimum} to {int(beyond) - 1} on Linux" in README


def test_the_readme_is_short():
    assert len(README.split()) <= 1500


def columns_of(function: str) -> set[str]:
    (body,) = re.findall(rf"^CREATE FUNCTION {function}\((.*?)\n    AS", SCRIPT, re.M | re.S)
    return set(re.findall(r"^    OUT (\w+) ", body, re.M))


def test_the_metrics_are_columns_and_the_panel_and_alerts_name_metrics():
    queries = yaml.safe_load((EXTENSION / "monitoring/queries.yaml").read_text())
    names = {view: {name for metric in query["metrics"] for name in metric} for view, query in queries.items()}
    assert names["pg_balloon"] - {"worker_running"} <= columns_of("pg_balloon_status")
    assert names["pg_stat_balloon"] == columns_of("pg_balloon_counters") - {"stats_reset"}
    metrics = {f"{view}_{name}" for view, columns in names.items() for name in columns}
    panel = json.loads((EXTENSION / "monitoring/panel.json").read_text())
    assert panel["type"] == "timeseries" and {target["expr"] for target in panel["targets"]} <= metrics
    alerts = re.findall(r"^\| [^|]+ \| `(\w+) [=>]", REFERENCE.partition("| alert |")[2], re.M)
    assert len(alerts) == 3 and set(alerts) <= metrics
