"""Inputs of plans and of mixes of tenants, changed at random: no traceback, and no silently wrong number."""

from __future__ import annotations

import csv
import io
import json
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from changes import read_changed
from pgherd.analysis.demand import Cost, Demand
from pgherd.model.errors import UsageError
from pgherd.prepare.capture_demand import read_captures
from pgherd.prepare.fleet_files import read_classes, read_demand, read_rules
from pgherd.prepare.requests import read_scenario, read_yaml
from pgherd.studies.density import prepare_tenants
from pgherd.studies.density.prepare_tenant_table import read_databases

ROOT = Path(__file__).parents[2]
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example writes its file anew
slow = settings(shared, max_examples=settings().max_examples // 5)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6)
WORDS = st.text(string.ascii_lowercase, min_size=1, max_size=4)


def table(draw: st.DrawFn, header: Sequence[str], rows: Iterable[Sequence[str]], separators: str) -> str:
    """A CSV file with its columns and rows in any order, as one of many programs writes it."""
    order = draw(st.permutations(range(len(header))))
    text = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer = csv.writer(
        text, delimiter=draw(st.sampled_from(separators)), quoting=quoting, lineterminator=draw(st.sampled_from(["\n", "\r\n"]))
    )
    writer.writerows([row[i] for i in order] for row in (header, *draw(st.permutations(list(rows)))))
    return draw(st.sampled_from(["", "\ufeff"])) + text.getvalue()


def plain(names: Iterable[str]) -> bool:
    return all(name.isascii() and name.isalpha() for name in names)


# ---- demand

Cells = dict[tuple[str, str, int], float | None]


@st.composite
def demands(draw: st.DrawFn) -> tuple[str, Cells]:
    """A demand file, and its values by database, resource and slot."""
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    resources = draw(st.lists(st.sampled_from(["cpu_cores", "memory_mb", "read_iops"]), min_size=1, unique=True))
    slots = range(draw(st.sampled_from([1, 2, 4])))
    value = st.integers(0, 10**7).map(lambda number: number / 1000)
    known = {(name, resource, slot): draw(value | st.none()) for name in names for resource in resources for slot in slots}
    text = {cell: "" if number is None else f"{number:.3f}" for cell, number in known.items()}
    if draw(st.booleans()):
        header = ["database", "time", "resource", "value"]
        rows = [[name, str(slot), resource, text[name, resource, slot]] for name, resource, slot in known]
    else:
        header = ["database", "time", *resources]
        rows = [[name, str(slot), *(text[name, resource, slot] for resource in resources)] for name in names for slot in slots]
    return table(draw, header, rows, ",;\t"), known


@slow
@given(demands())
def test_a_written_demand_is_read_as_meant_or_refused(tmp_path: Path, written: tuple[str, Cells]) -> None:
    text, known = written
    names, resources = ({cell[i] for cell in known} for i in (0, 1))
    (tmp_path / "demand.csv").write_text(text, encoding="utf-8", newline="")
    try:
        found = read_demand(tmp_path / "demand.csv", 95)
    except UsageError:
        unknown = any(all(known[cell] is None for cell in known if cell[1] == resource) for resource in resources)
        assert unknown or not plain(names)
        return
    assert set(found.names) == names and set(found.resources) == resources
    for (name, resource, slot), number in known.items():
        value = found.high[found.names.index(name), found.resources.index(resource), slot]
        assert number is None or value == pytest.approx(number, rel=1e-6)
    gaps = {(name, resource): number for (name, resource, _), number in known.items() if number is None}
    assert {(one.database, one.resource) for one in found.unknown} == set(gaps)


@slow
@given(st.text(alphabet="0123456789.,;:\t '\"-#eE\nTZab", max_size=80), st.sampled_from([",", ";"]))
@example("#1,0,5\nb,0,1\n", ",")
@example("a,0,1,5\nb,0,2,5\n", ",")
@example("a,0,1e13\n", ",")
def test_any_demand_is_read_or_refused(tmp_path: Path, text: str, separator: str) -> None:
    (tmp_path / "demand.csv").write_text(separator.join(("database", "time", "cpu_cores")) + "\n" + text)
    try:
        found = read_demand(tmp_path / "demand.csv", 95)
    except UsageError:
        return
    assert np.isfinite(found.high).all() and (found.low >= 0).all() and (found.low <= found.high).all()
    assert len(found.names) * len(found.slots) * found.days <= sum(bool(line.strip()) for line in text.splitlines())


CAPTURE = ROOT / "tests/fixtures/capture/capture.json"
COST = Cost("*", {"cpu_cores": (0.001, 0.002), "memory_mb": (100, 200)}, "--demand-run run")


@shared
@given(data=st.data())
def test_an_odd_capture_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    def read(document: Any) -> Demand:
        (tmp_path / "capture.json").write_text(json.dumps(document))
        return read_captures([tmp_path], 95, [COST])

    found = read_changed(read, json.loads(CAPTURE.read_text()), data, UsageError)
    if found is None:
        return
    assert np.isfinite(found.high).all() and (found.low >= 0).all() and (found.low <= found.high).all()


# ---- constraints and classes of hosts


@shared
@given(data=st.data())
def test_written_constraints_are_read_as_meant_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    groups = [data.draw(st.lists(WORDS, max_size=2)) for _ in names]
    labels = [data.draw(st.dictionaries(WORDS, WORDS, max_size=2)) for _ in names]
    rows = [
        [name, data.draw(st.sampled_from([" ", ","])).join(group), " ".join(f"{key}={value}" for key, value in label.items())]
        for name, group, label in zip(names, groups, labels, strict=True)
    ]
    text = data.draw(st.composite(lambda draw: table(draw, ["database", "apart", "labels"], rows, ",;"))())
    (tmp_path / "rules.csv").write_text(text, encoding="utf-8", newline="")
    try:
        found = {rule.database: rule for rule in read_rules(tmp_path / "rules.csv")}
    except UsageError:
        assert ";" in text or not plain(names)
        return
    assert found.keys() == set(names)
    for name, group, label in zip(names, groups, labels, strict=True):
        assert found[name].apart in (tuple(group), (",".join(group),) if group else ()) and found[name].labels == label


@shared
@given(st.text(alphabet="ab=,;\"'\n\r\x0b\x1c\u2028 ", max_size=60))
@example("a,b,c\n")
def test_any_constraints_are_read_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rules.csv").write_text("database,apart\n" + text, encoding="utf-8", newline="")
    try:
        found = read_rules(tmp_path / "rules.csv")
    except UsageError:
        return
    letters = "".join(rule.database + "".join(rule.apart) for rule in found)
    assert sorted(letters.replace(" ", "").translate(str.maketrans("", "", "=,;\"'\n\ufffd"))) == sorted(c for c in text if c in "ab")


HOSTS = {
    "classes": [
        {"name": "big", "capacity": {"cpu_cores": {"value": 8, "low": 7, "high": 9}, "memory_mb": 32000}, "price": 1.5, "count": 3},
        {
            "name": "small",
            "capacity": {"cpu_cores": 2},
            "labels": {"zone": "a"},
            "names": ["h1", "h2"],
            "latency": {"objective": "p99=10ms", "low": 1, "value": 1.5, "high": 1.8},
        },
    ]
}


@shared
@given(data=st.data())
def test_odd_classes_of_hosts_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    def read(document: Any) -> Sequence[Any]:
        (tmp_path / "hosts.yaml").write_text(yaml.dump(document), errors="surrogatepass")
        return read_classes(tmp_path / "hosts.yaml")

    found = read_changed(read, HOSTS, data, UsageError)
    assert found is None or all(0 < capacity.value < float("inf") for one in found for capacity in one.capacity.values())


# ---- tenants and scenarios


@shared
@given(data=st.data())
def test_odd_classes_of_tenants_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    def read(document: Any) -> Sequence[Any]:
        (tmp_path / "tenants.yaml").write_text(yaml.dump(document), errors="surrogatepass")
        return prepare_tenants.read_classes(tmp_path / "tenants.yaml", read_yaml(tmp_path / "tenants.yaml"), {"databases": (1,)})

    found = read_changed(read, yaml.safe_load((ROOT / "scenarios/tenants/laptop.yaml").read_text()), data, UsageError)
    assert found is None or all(request.vcpus and 0 < request.vcpus < float("inf") for _, request in found)


@shared
@given(file=st.sampled_from(sorted((ROOT / "scenarios").glob("*-laptop.yaml"))), data=st.data())
def test_an_odd_scenario_is_read_or_refused(tmp_path: Path, file: Path, data: st.DataObject) -> None:
    def read(document: Any) -> str:
        (tmp_path / file.name).write_text(yaml.dump(document), errors="surrogatepass")
        return read_scenario(tmp_path / file.name).study

    assert read_changed(read, yaml.safe_load(file.read_text()), data, UsageError) != ""


@shared
@given(data=st.data())
def test_a_written_table_of_databases_is_read_as_meant_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    # A line that starts with '#' is a comment.
    names = data.draw(st.lists(NAMES.filter(lambda name: name[0] != "#"), min_size=1, max_size=4, unique=True))
    mark = data.draw(st.sampled_from([".", ","]))
    meant = [(data.draw(st.integers(1, 10**6)), data.draw(st.integers(0, 10**8)), data.draw(st.integers(0, 95))) for _ in names]
    rows = [
        [name, f"{size}MB", f"{rate // 1000}{mark}{rate % 1000:03d}", f"{quarter // 4:02d}:{15 * (quarter % 4):02d}"]
        for name, (size, rate, quarter) in zip(names, meant, strict=True)
    ]
    text = data.draw(st.composite(lambda draw: table(draw, ["database", "size", "tps", "peak hour"], rows, ",;\t"))())
    (tmp_path / "fleet.csv").write_text(text, encoding="utf-8", newline="")
    try:
        found = {one.name: one for one in read_databases(tmp_path / "fleet.csv")}
    except UsageError:
        return
    assert found.keys() == set(names)
    # '1,050' alone may be 1.05 or 1050. All rates are then read alike.
    scales = {1.0} if mark == "." else {1.0, 1000.0}
    for name, (size, rate, quarter) in zip(names, meant, strict=True):
        assert found[name].size == size * 2**20 and found[name].peak_hour == quarter / 4
        scales &= {scale for scale in (1.0, 1000.0) if found[name].tps == pytest.approx(scale * rate / 1000)}
    assert scales
