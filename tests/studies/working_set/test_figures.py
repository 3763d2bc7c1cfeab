"""Figures of working-set runs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pgherd.model.analysis import Analysis, Finding
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.working_set import figures


def about(value: float | None, spread: float = 0.0, unit: str = "tps") -> Finding:
    if value is None or not spread:
        return Finding(value=value, unit=unit, note="no interval: few")
    return Finding(value=value, unit=unit, low=value * (1 - spread), high=value * (1 + spread), confidence=0.95)


def tps(size: float, knee: float) -> float:
    return 20_000 / (1 + 1.5 * max(0.0, 1 - size / knee))


SIZES = {"memory": (100, 140, 180, 220, 250, 300, 350), "shared-buffers": (16, 32, 64, 96, 128, 160)}
KNEES = {("memory", 30): 240.0, ("memory", 2): 200.0, ("shared-buffers", 30): 100.0, ("shared-buffers", 2): None}
VARIED = {"memory": "container memory", "shared-buffers": "shared buffers"}


def analysed(dead: tuple[int, ...] = (80,)) -> Analysis:
    curves, rows, summary, findings = [], [], [], {}
    for (sweep, clients), knee in KNEES.items():
        end = SIZES[sweep][-1]
        for size in (*(dead if sweep == "memory" else ()), *SIZES[sweep]):
            gone = sweep == "memory" and size in dead
            rows.append(
                {
                    "varied": VARIED[sweep],
                    "clients": clients,
                    "memory": size if sweep == "memory" else size + 150,
                    "shared_buffers": 64 if sweep == "memory" else size,
                    "throughput": None if gone else about(tps(size, knee or 1.0), 0.03),
                    "refaults": None if gone else max(0.0, 1 - size / (knee or 1.0)),
                    "memory_or_io_pressure": None if gone else 0.4 * max(0.0, 1 - size / (knee or 1.0)),
                    "state": "out-of-memory" if gone else "ok",
                }
            )
        line = [[float(size), tps(size, knee or 1.0)] for size in range(SIZES[sweep][0], end + 1, 4)]
        low, high = (knee and knee * 0.95, knee and knee * 1.04)
        curves.append({"sweep": sweep, "clients": clients, "kind": "knee" if knee else "flat", "knee": knee, "low": low, "high": high})
        curves[-1] |= {"line": line, "out_of_memory_sizes": list(dead) if sweep == "memory" else []}
        finding = about(knee, 0.04, "MB")
        findings[f"{'working_set' if sweep == 'memory' else 'shared_buffers_needed'}.{clients}"] = finding
        summary.append(
            {
                "varied": VARIED[sweep],
                "clients": clients,
                "working_set": finding,
                "from_misses": about(knee and knee * 1.1, 0.05, "MB"),
                "from_memory_in_use": about(210.0, 0.0, "MB"),
                "from_psi": about(250.0, 0.0, "MB") if sweep == "memory" else None,
            }
        )
    return Analysis(
        answer="So it is.", grade="B", findings=findings, tables={"working-set": summary, "sweep": rows}, figures={"curves": curves}
    )


@pytest.fixture
def inputs(working_set_record):
    return lambda analysis: FigureInputs(working_set_record, analysis, [])


@pytest.fixture
def working_set_record():
    from pgherd.model.run import RunRecord

    return RunRecord(run="r", study="working-set", options={}, started=0.0, pgherd="0")


def texts(figure: drawing.Figure) -> str:
    svg = drawing.svg(figure, prefix="x")
    return " ".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.parametrize("name", ["memory", "shared_buffers", "misses", "estimates"])
def test_every_figure_follows_its_schema_and_is_drawn(inputs, name):
    figure = drawing.builders("working-set")[name](inputs(analysed()))
    assert drawing.specification(figure, validate=True)
    assert figure.title.split()[0] in texts(figure)


def test_the_sentence_gives_each_load_its_knee(inputs):
    assert figures.memory(inputs(analysed())).title == (
        "Container memory is sufficient from 240 MB (230–250) with 30 clients, 200 MB (192–208) with 2 clients"
    )
    assert "no knee with 2 clients" in figures.shared_buffers(inputs(analysed())).title


def test_loads_are_named_at_their_curves(inputs):
    shown = texts(figures.memory(inputs(analysed())))
    assert "30 clients" in shown and "2 clients" in shown and "size out of memory" in shown


def test_a_sweep_that_was_not_requested_has_no_reason(inputs):
    analysis = analysed()
    memory = analysis.model_copy(update={"figures": {"curves": [c for c in analysis.figures["curves"] if c["sweep"] == "memory"]}})
    with pytest.raises(FigureUnavailable) as raised:
        figures.shared_buffers(inputs(memory))
    assert str(raised.value) == ""


def test_a_sweep_without_throughput_says_so(inputs):
    analysis = analysed()
    empty = analysis.model_copy(update={"tables": {**analysis.tables, "sweep": []}})
    with pytest.raises(FigureUnavailable, match="no trial finished"):
        figures.memory(inputs(empty))
    with pytest.raises(FigureUnavailable, match="two sizes"):
        figures.misses(inputs(empty))


def test_no_estimates_without_a_knee(inputs):
    analysis = analysed()
    rows = [{**row, "working_set": about(None, 0, "MB")} for row in analysis.tables["working-set"]]
    with pytest.raises(FigureUnavailable, match="no curve has a knee"):
        figures.estimates(inputs(analysis.model_copy(update={"tables": {**analysis.tables, "working-set": rows}})))
