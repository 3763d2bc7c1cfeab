"""The report as one HTML file that needs no network and no script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import formatting, html_model
from pgherd.report.data_files import leading, notices
from pgherd.report.formatting import clean
from pgherd.study.registry import table_view

if TYPE_CHECKING:
    from pgherd.report.drawing import RenderedFigure


@cache
def environment() -> Environment:
    """The template environment; everything is escaped unless it is one of our own figures."""
    loader = PackageLoader("pgherd.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["quoted"] = lambda text: quote(str(text), safe="")
    return made


def render(
    record: RunRecord,
    results: Sequence[TrialResult],
    figures: Sequence[RenderedFigure] = (),
    left_out: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """The whole page.

    ``left_out`` says why a figure is missing; ``directory`` is the run's, whose files are listed. A run without an
    analysis (interrupted, failed) still gives a page that says so.
    """
    analysis = record.analysis
    held = {name: rows for name, rows in analysis.tables.items() if rows} if analysis else {}
    first = leading(record.study, held)
    main = html_model.main_table(first, held[first]) if first else None
    differing = held.pop("differences", None)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            run=clean(record.run),
            answer=clean(analysis.answer) if analysis else formatting.no_answer(record.state, record.error),
            grade=analysis.grade if analysis else None,
            grade_meaning=formatting.grade_meaning(analysis.grade, len(results)) if analysis else "",
            main_table=main,
            differing=html_model.table("differences", differing) if differing else None,
            notices=notices(record),
            other_tables=[html_model.table(name, rows) for name, rows in held.items() if name != first or table_view(name).main],
            warnings=[clean(text) for text in analysis.warnings] if analysis else [],
            look_at=[clean(text) for text in analysis.look_at] if analysis else [],
            figures=[(figure.name, figure.figure.title, figure.caption, inline(figure)) for figure in figures],
            left_out={clean(name): clean(reason) for name, reason in (left_out or {}).items()},
            matrix=html_model.check_matrix(results),
            exceptions=html_model.exceptions(results),
            point=formatting.point_text,
            label=formatting.label,
            findings=html_model.findings_table(analysis.findings) if analysis and analysis.findings else None,
            hosts={clean(name): (clean(facts.hostname), html_model.host_facts(facts)) for name, facts in record.hosts.items()},
            settings=html_model.settings(record, results),
            command=clean(shlex.join(record.command)),
            trials=len(results),
            raw_files=html_model.raw_files(directory),
            proposals=html_model.proposals(record),
            timing=html_model.timing(record),
            started=formatting.instant(record.started),
            ended=formatting.instant(record.ended),
            clean=clean,
        )
    )


def inline(figure: RenderedFigure) -> Markup:
    """A figure's SVG for a page: named for a screen reader, free to shrink. It comes from our own renderer, which escapes text."""
    opening = Markup('<svg role="img" aria-label="{}" ').format(clean(figure.figure.title))
    return opening + Markup(figure.svg.removeprefix("<svg "))
