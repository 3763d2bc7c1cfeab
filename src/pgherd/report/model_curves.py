"""The fitted scaling models of an analysis, for figures: their curves, the chosen one, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pgherd.report.chart_style import GREEN, ORANGE, PURPLE, SKY, Line
from pgherd.report.drawing import FigureInputs
from pgherd.report.formatting import clean, finite


def best(inputs: FigureInputs, variant: str = "") -> str | None:
    """Name of the chosen model, of one variant where the run has some."""
    name = _models(inputs, variant).get("best")
    return str(name) if name else None


def best_curve(inputs: FigureInputs, last: float, variant: str = "") -> list[tuple[float, float]]:
    """The chosen model's curve, as ``curves`` has it; empty where none was chosen."""
    return dict(curves(inputs, last, variant)).get(best(inputs, variant) or "", [])


def _models(inputs: FigureInputs, variant: str) -> Mapping[str, Any]:
    figures = inputs.analysis.figures
    by_variant = figures.get("variant_models")
    models = figures.get("models") if not variant else by_variant.get(variant) if isinstance(by_variant, Mapping) else None
    return models if isinstance(models, Mapping) else {}


def curves(inputs: FigureInputs, last: float, variant: str = "") -> list[tuple[str, list[tuple[float, float]]]]:
    """Each model's curve as (load, throughput), at most a fifth beyond the last load measured, with a point exactly there; of one
    variant where the run has some."""
    found = []
    for name, curve in _models(inputs, variant).items():
        if not isinstance(curve, Mapping):
            continue
        pairs = zip(curve.get("n", ()), curve.get("x", ()), strict=False)
        points = sorted((n, x) for a, b in pairs if (n := finite(a)) is not None and (x := finite(b)) is not None and n <= last * 1.2)
        ends = [(last, x0 + (x1 - x0) * (last - n0) / (n1 - n0)) for (n0, x0), (n1, x1) in pairwise(points) if n0 < last < n1]
        if len(points) > 1:
            found.append((str(name), sorted(points + ends)))
    return found


def drawn(
    inputs: FigureInputs, found: list[tuple[str, list[tuple[float, float]]]], last: float, scale: float, variant: str = ""
) -> tuple[list[Line], list[tuple[float, str, str]]]:
    """Lines of the curves, solid within the data and dashed beyond, and a label (height at its end, text, colour) for each.

    ``scale`` divides throughputs.
    """
    chosen = best(inputs, variant)
    lines: list[Line] = []
    labels = []
    for index, (name, points) in enumerate(found):
        colour, width = (GREEN, 2.2) if name == chosen else ((PURPLE, ORANGE, SKY)[index % 3], 1.4)
        scaled = [(n, value / scale) for n, value in points]
        lines.append(([point for point in scaled if point[0] <= last], colour, width, [1, 0]))
        lines.append(([point for point in scaled if point[0] >= last], colour, width, [4, 4]))
        labels.append((scaled[-1][1], f"{'best fit: ' if name == chosen else ''}{model_name(name)}", colour))
    return lines, labels


def model_name(name: str) -> str:
    """A model's name in a label."""
    return {"usl": "USL", "linear": "straight line"}.get(name, clean(name))
