"""CPU figures of scaling runs."""

from __future__ import annotations

import json

import pytest

from pgherd.model.analysis import Analysis, Finding
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.scaling import figures_cpu


def about(value: float | None, unit: str) -> Finding:
    return Finding(
        value=value, unit=unit, low=value and value * 0.98, high=value and value * 1.02, note="not seen" if value is None else ""
    )


def scaling(clients: int, server: float | None, share: float | None, **extra: str) -> dict:
    tps = Finding(value=10_000.0 * min(clients, 4), unit="tps")
    return {
        **extra,
        "clients": clients,
        "throughput": tps,
        "server_cpu_per_tx": about(server, "ms"),
        "client_cpu_share": about(share, "ratio"),
    }


def cores(clients: int, busy: float, **extra: str) -> dict:
    parts = {"databases_cpu": busy * 0.7, "clients_cpu": busy * 0.3, "pgherd_cpu": 0.01, "platform_cpu": 0.02, "iowait": 0.0, "steal": 0.0}
    cells = {name: Finding(value=value, unit="cores") for name, value in parts.items()}
    return {**extra, "clients": clients, **cells, "idle": Finding(value=4 - busy - 0.03, unit="cores")}


@pytest.fixture(scope="module")
def record(synthetic):
    result = synthetic.density_run(8)[0]
    hosts = {name: facts.model_copy(update={"logical_cpus": 4}) for name, facts in result.hosts.items()}
    return result.model_copy(update={"study": "scaling", "hosts": hosts})


def inputs(record, rows, cpu=()) -> FigureInputs:
    return FigureInputs(record, Analysis(answer="", grade="A", tables={"scaling": list(rows), "cpu": list(cpu)}), [])


def test_the_cost_is_stacked_from_server_and_pgbench(record):
    figure = figures_cpu.cpu_per_tx(inputs(record, [scaling(1, 0.040, 0.2), scaling(8, 0.060, 0.25)]))
    assert figure.title == "With 8 clients a transaction costs 60 µs of server CPU; pgbench uses 25 % of the CPU of both"
    spec = drawing.specification(figure, validate=True)
    bars = [row for dataset in spec["datasets"].values() for row in json.loads(dataset) if "colour" in row and "low" in row]
    assert [(row["x"], round(row["low"], 6), round(row["high"], 6)) for row in bars] == [
        ("1", 0, 40),
        ("1", 40, 50),
        ("8", 0, 60),
        ("8", 60, 80),
    ]


def test_variants_are_lines_of_server_cpu(record):
    rows = [scaling(n, cost * n**0.1, 0.3, variant=name) for name, cost in (("a", 0.04), ("b", 0.05)) for n in (1, 4)]
    figure = figures_cpu.cpu_per_tx(inputs(record, rows))
    assert figure.title == "At the peak a transaction costs 45.9 µs for 'a', 57.4 µs for 'b' of server CPU"
    drawing.specification(figure, validate=True)


def test_without_accounting_there_is_no_cost(record):
    with pytest.raises(FigureUnavailable, match="not measured separately"):
        figures_cpu.cpu_per_tx(inputs(record, [scaling(1, None, None)]))


def test_cores_are_stacked_and_the_first_full_point_is_named(record):
    figure = figures_cpu.cpu(inputs(record, [], [cores(1, 0.9), cores(4, 3.2), cores(8, 3.96), cores(16, 3.97)]))
    assert figure.title == "From 8 clients on, all of the 4 cores are busy"
    spec = drawing.specification(figure)
    names = {row.get("name") for dataset in spec["datasets"].values() for row in json.loads(dataset)}
    assert {"server", "clients", "idle"} <= names
    shared = cores(8, 2.9) | {"platform_cpu": Finding(value=1.05, unit="cores"), "idle": Finding(value=0.02, unit="cores")}
    assert figures_cpu.cpu(inputs(record, [], [cores(1, 0.9), shared])).title == (
        "From 8 clients on, all of the 4 cores are busy; other processes use up to 1.05 of them"
    )
    never = figures_cpu.cpu(inputs(record, [], [cores(1, 0.9), cores(4, 3.2)]))
    assert never.title == "At least 0.77 of 4 cores are idle at every point"


def test_figures_that_do_not_apply_have_no_reason(record):
    for builder, tables in (
        (figures_cpu.cpu, [cores(1, 1, variant="a"), cores(1, 1, variant="b")]),
        (figures_cpu.fairness, []),
    ):
        with pytest.raises(FigureUnavailable) as reason:
            builder(inputs(record, [], tables))
        assert str(reason.value) == ""
    with pytest.raises(FigureUnavailable, match="neither"):
        figures_cpu.cpu(inputs(record, []))
