"""Figures: what one is, which builders a study has, and how all are drawn for a run.

A builder is a function of Inputs that returns a Figure, or raises NotDrawn with the reason. It is registered in its module; a study names
its modules, and the general ones serve every study.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from pgherd.model.finding import Analysis
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import chart_style
from pgherd.report.formatting import clean
from pgherd.study.emulation import FUNCTIONAL, WHY
from pgherd.study.registry import studies

TRIALS = "trials/*/trial.json"
SAMPLES = "trials/*/samples/*.parquet"

_OF_MEMORY = frozenset({"guest_memory", "memory", "swapping"})
"""Figures that mean something although processors were emulated."""
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
_GEOMETRY = re.compile(r' (?:d|transform|x1|x2|y1|y2|x|y|width|height)="[^"]*"')
_LONG = re.compile(r"(\d+\.\d\d)\d+(?!\d*e)")
"""A hundredth of a pixel is enough: shorter coordinates save a third of a file."""

_GENERIC = (
    "pgherd.report.trial_figures",
    "pgherd.report.memory_figures",
    "pgherd.report.guest_memory_figures",
    "pgherd.report.io_figures",
)


@dataclass(frozen=True)
class FigureInputs:
    """All that a figure may be made of."""

    record: RunRecord
    analysis: Analysis
    results: Sequence[TrialResult]
    directory: Path | None = None
    """The run's directory, for figures of samples; None: there is none to read."""


@dataclass(frozen=True)
class Figure:
    """One figure: ``title`` states the finding; ``sources`` are the run's raw files behind it (patterns); ``caption``
    says what else a careful reader must know."""

    title: str
    chart: alt.TopLevelMixin
    sources: tuple[str, ...]
    caption: str = ""


@dataclass(frozen=True)
class RenderedFigure:
    """A figure as SVG text under its file name's stem."""

    name: str
    figure: Figure
    svg: str

    @property
    def caption(self) -> str:
        """The caption with the raw files it came from."""
        return f"{self.figure.caption} Made from {', '.join(self.figure.sources)}.".strip()


class FigureUnavailable(Exception):
    """The data cannot support this figure; the message says why. Empty: it is not meant for this run, and not missed."""


FigureBuilder = Callable[[FigureInputs], Figure]
_builders: dict[str, dict[str, FigureBuilder]] = {}


def register(name: str) -> Callable[[FigureBuilder], FigureBuilder]:
    """Make a builder known under a file name, as one of its module's."""

    def keep(builder: FigureBuilder) -> FigureBuilder:
        _builders.setdefault(builder.__module__, {})[name] = builder
        return builder

    return keep


def builders(study: str) -> dict[str, FigureBuilder]:
    """Name → builder of all figures for a study, its own first; one of its own replaces the general one of that name."""
    found: dict[str, FigureBuilder] = {}
    known = studies().get(study)
    modules = [known.module(name) for name in known.figures] if known is not None else []
    for module in (*modules, *map(importlib.import_module, _GENERIC)):
        found = found | {name: builder for name, builder in _builders.get(module.__name__, {}).items() if name not in found}
    return found


def draw(inputs: FigureInputs) -> tuple[list[RenderedFigure], dict[str, str]]:
    """Draw all figures of the run's study; the second part says why each missing one was left out."""
    from altair.utils.schemapi import debug_mode

    drawn: list[RenderedFigure] = []
    left_out: dict[str, str] = {}
    for name, builder in builders(inputs.record.study).items():
        if inputs.analysis.tables.get(FUNCTIONAL) and name not in _OF_MEMORY:
            left_out[name] = WHY  # nothing that is drawn of speed or CPU means anything
            continue
        try:
            with debug_mode(False):  # checking every part against the schema takes longer than drawing it; tests do it
                figure = builder(inputs)
            drawn.append(RenderedFigure(name, figure, svg(figure, prefix=name)))
        except FigureUnavailable as reason:
            if str(reason):
                left_out[name] = str(reason)
        except Exception as error:  # a faulty figure must not cost the reader the answer; it is said in the report
            left_out[name] = f"it could not be drawn ({type(error).__name__}: {clean(error)})"
    return drawn, left_out


def specification(figure: Figure, *, validate: bool = False) -> dict[str, Any]:
    """The figure's Vega-Lite specification, checked against its schema if asked."""
    spec: dict[str, Any] = figure.chart.to_dict(validate=validate)
    return spec


def svg(figure: Figure, *, prefix: str) -> str:
    """The figure as an SVG element, the same for the same figure; its ids start with ``prefix`` (several share one page)."""
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(specification(figure), config=chart_style.CONFIG)
    ids = {found: f"{prefix}-{index}" for index, found in enumerate(dict.fromkeys(_ID.findall(text)))}  # the renderer counts on and on
    text = _REFERENCE.sub(lambda found: found[1] + ids.get(found[2], found[2]), text)
    text = _GEOMETRY.sub(lambda found: _LONG.sub(r"\1", found[0]), text)
    return text[text.index("<svg") :]


def png(svg_text: str, *, scale: float = 2.0) -> bytes:
    """An SVG as PNG, at twice its size in pixels."""
    import vl_convert

    image: bytes = vl_convert.svg_to_png(svg_text, scale=scale)
    return image
