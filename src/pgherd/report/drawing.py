"""Figures: their model, the builders of each study, and drawing for a run.

A builder is a function of FigureInputs that returns a Figure, or raises FigureUnavailable with the reason. Its module registers it.
A study names its figure modules. The general builders serve every study.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from pgherd.model.analysis import Analysis
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report import chart_style
from pgherd.study.guests import EMULATION_REASON, FUNCTIONAL_TABLE
from pgherd.study.study import studies

TRIALS = "trials/*/trial.json"
SAMPLES = "trials/*/samples/*.parquet"

_OF_MEMORY = frozenset({"guest_memory", "memory", "swapping"})
"""Figures that are meaningful on emulated processors."""
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
_GEOMETRY = re.compile(r' (?:d|transform|x1|x2|y1|y2|x|y|width|height)="[^"]*"')
_LONG = re.compile(r"(\d+\.\d\d)\d+(?!\d*e)")
"""Coordinates are cut to a hundredth of a pixel, which saves a third of a file."""

_GENERIC = (
    "pgherd.report.objective_figure",
    "pgherd.report.trial_figures",
    "pgherd.report.memory_figures",
    "pgherd.report.guest_memory_figures",
    "pgherd.report.io_figures",
)
"""Their figures follow those of the study, in this order. A search by objective has no other figure of its answer."""


@dataclass(frozen=True)
class FigureInputs:
    """Data that a figure is drawn from."""

    record: RunRecord
    analysis: Analysis
    results: Sequence[TrialResult]
    directory: Path | None = None
    """The run's directory, for figures of samples. None: no samples."""


@dataclass(frozen=True)
class Figure:
    """One figure: ``title`` states the finding, ``sources`` are patterns of the run's raw files behind it, ``caption`` has caveats."""

    title: str
    chart: alt.TopLevelMixin
    sources: tuple[str, ...]
    caption: str = ""


@dataclass(frozen=True)
class RenderedFigure:
    """A figure as SVG text, with the stem of its file name."""

    name: str
    figure: Figure
    svg: str

    @property
    def caption(self) -> str:
        """The caption with the raw files behind the figure."""
        return f"{self.figure.caption} Source: {', '.join(self.figure.sources)}.".strip()


class FigureUnavailable(Exception):
    """The data do not support this figure, for the reason in the message. Empty: the figure does not apply to this run."""


FigureBuilder = Callable[[FigureInputs], Figure]
_builders: dict[str, dict[str, FigureBuilder]] = {}


def register(name: str) -> Callable[[FigureBuilder], FigureBuilder]:
    """Register a builder under a file name, in its module."""

    def keep(builder: FigureBuilder) -> FigureBuilder:
        _builders.setdefault(builder.__module__, {})[name] = builder
        return builder

    return keep


def builders(study: str) -> dict[str, FigureBuilder]:
    """Return name → builder of all figures of a study. A study's builder replaces the general one of that name."""
    by_name: dict[str, FigureBuilder] = {}
    study_object = studies().get(study)
    modules = [study_object.module(name) for name in study_object.figures] if study_object is not None else []
    for module in (*modules, *map(importlib.import_module, _GENERIC)):
        by_name = by_name | {name: builder for name, builder in _builders.get(module.__name__, {}).items() if name not in by_name}
    return by_name


_SEARCHES = {"objective", "tenants"}
"""Tables of a search for the largest size. Of the study's figures, such a run has those that are named after one of its tables."""


def draw(inputs: FigureInputs) -> tuple[list[RenderedFigure], dict[str, str]]:
    """Draw all figures of the run's study. Also return name → reason of each omitted figure."""
    from altair.utils.schemapi import debug_mode

    figures: list[RenderedFigure] = []
    omitted: dict[str, str] = {}
    search = not _SEARCHES.isdisjoint(inputs.analysis.tables)
    for name, builder in builders(inputs.record.study).items():
        if inputs.analysis.tables.get(FUNCTIONAL_TABLE) and name not in _OF_MEMORY:
            omitted[name] = EMULATION_REASON  # emulated processors: figures of speed or CPU are meaningless
            continue
        if search and name not in inputs.analysis.tables and builder.__module__.startswith("pgherd.studies."):
            continue  # a search has none of the study's other tables
        try:
            with debug_mode(False):  # schema checks take longer than drawing, and the tests do them
                figure = builder(inputs)
            figures.append(RenderedFigure(name, figure, svg(figure, prefix=name)))
        except FigureUnavailable as reason:
            if str(reason):
                omitted[name] = str(reason)
        except Exception as error:  # a figure that fails must not prevent the report, which names the error
            omitted[name] = f"drawing failed ({type(error).__name__}: {clean(error)})"
    return figures, omitted


def specification(figure: Figure, *, validate: bool = False) -> dict[str, Any]:
    """Return the figure's Vega-Lite specification, on request checked against its schema."""
    spec: dict[str, Any] = figure.chart.to_dict(validate=validate)
    return spec


def svg(figure: Figure, *, prefix: str) -> str:
    """Return the figure as an SVG element, always the same for the same figure.

    Its ids start with ``prefix``, because several figures share one page.
    """
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(specification(figure), config=chart_style.CONFIG)
    ids = {
        old_id: f"{prefix}-{index}" for index, old_id in enumerate(dict.fromkeys(_ID.findall(text)))
    }  # the renderer never resets its counter
    text = _REFERENCE.sub(lambda match: match[1] + ids.get(match[2], match[2]), text)
    text = _GEOMETRY.sub(lambda match: _LONG.sub(r"\1", match[0]), text)
    return text[text.index("<svg") :]


def png(svg_text: str, *, scale: float = 2.0) -> bytes:
    """Return an SVG as PNG, at ``scale`` times its size in pixels."""
    import vl_convert

    image: bytes = vl_convert.svg_to_png(svg_text, scale=scale)
    return image
