"""The report of a run: rendered as one HTML page without scripts and network access, and written with JSON, CSV and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.node import files as node_files
from pgherd.node.files import UnsafeFileError
from pgherd.report import data_files, formatting, html_model
from pgherd.report.data_files import leading, notices
from pgherd.store.run_directory import RunDirectory
from pgherd.study.study import table_view

if TYPE_CHECKING:
    from pgherd.report.drawing import RenderedFigure


@cache
def environment() -> Environment:
    """Return the template environment. It escapes everything except pgherd's figures."""
    loader = PackageLoader("pgherd.report")
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates.filters["quoted"] = lambda text: quote(str(text), safe="")
    return templates


def render(
    record: RunRecord,
    results: Sequence[TrialResult],
    figures: Sequence[RenderedFigure] = (),
    left_out: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Return the complete page.

    ``left_out`` maps each omitted figure to its reason. ``directory`` is the run's, whose files are listed. A run without an analysis
    (interrupted
    or failed) also has a page.
    """
    analysis = record.analysis
    tables = {name: rows for name, rows in analysis.tables.items() if rows} if analysis else {}
    first = leading(record.study, tables)
    main = html_model.main_table(first, tables[first]) if first else None
    differences = tables.pop("differences", None)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            run=clean(record.run),
            answer=clean(analysis.answer) if analysis else formatting.no_answer(record.state, record.error),
            grade=analysis.grade if analysis else None,
            grade_meaning=formatting.grade_text(analysis, len(results)) if analysis else "",
            details=[clean(text) for text in analysis.details] if analysis else [],
            main_table=main,
            differing=html_model.table("differences", differences) if differences else None,
            notices=notices(record),
            other_tables=[html_model.table(name, rows) for name, rows in tables.items() if name != first or table_view(name).main],
            warnings=[clean(text) for text in analysis.warnings] if analysis else [],
            next_steps=[clean(text) for text in analysis.next_steps] if analysis else [],
            figures=[(figure.name, figure.figure.title, figure.caption, inline(figure)) for figure in figures],
            left_out={clean(name): clean(reason) for name, reason in (left_out or {}).items()},
            matrix=html_model.check_matrix(results),
            exceptions=html_model.exceptions(results),
            point=formatting.point_text,
            label=formatting.label,
            findings=html_model.findings_table(analysis.findings) if analysis and analysis.findings else None,
            hosts={clean(name): (clean(facts.hostname), html_model.host_facts(facts)) for name, facts in record.hosts.items()},
            prometheus=html_model.prometheus(results),
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
    """Return a figure's SVG for a page, with a label for screen readers. The renderer has escaped its text."""
    opening = Markup('<svg role="img" aria-label="{}" ').format(clean(figure.figure.title))
    return opening + Markup(figure.svg.removeprefix("<svg "))  # noqa: S704 (the renderer has escaped its text)


def build(
    directory: Path,
    record: RunRecord,
    results: Sequence[TrialResult],
    *,
    figures: bool = True,
    png: bool = False,
    output: Path | None = None,
) -> list[Path]:
    """Write ``report.html``, ``report.json``, ``tables/*.csv`` and ``figures/*.svg`` (on request also ``*.png``).

    They are written to the run's directory, or to the directory ``output``. Each file is replaced atomically (temporary name, sync,
    rename). A figure of an earlier report in the run's directory that is not drawn again is removed. Returns the written files,
    ``report.html`` first.

    Raises:
        UsageError: the directory is not writable, or the run's directory belongs to another user.
    """
    files: dict[str, bytes] = {}
    rendered: list[RenderedFigure] = []
    left_out: dict[str, str] = {}
    names: set[str] = set()
    if figures and record.analysis:
        from pgherd.report import drawing  # importing altair takes 0.3 s of CPU

        rendered, left_out = drawing.draw(drawing.FigureInputs(record, record.analysis, results, directory))
        names = set(drawing.builders(record.study))
        for figure in rendered:
            files[f"figures/{figure.name}.svg"] = figure.svg.encode()
            if png:
                files[f"figures/{figure.name}.png"] = drawing.png(figure.svg)
    elif figures:
        left_out = {"all": "the run has no analysis"}
    else:
        left_out = {"all": "not requested"}
    page = render(record, results, rendered, left_out, directory)
    files = {"report.html": page.encode(), "report.json": data_files.document_text(record, results).encode(), **files}
    if record.analysis:
        files |= {f"tables/{name}": text.encode() for name, text in data_files.csv_files(record.analysis).items()}
    run, place = RunDirectory(directory), output or directory
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            with node_files.Directory.open(output.resolve()) as target:
                for name, data in files.items():
                    node_files.write_below(target, name, data)
            return [output / name for name in files]
        for name, data in files.items():
            run.write(name, data)
        for name in names:
            for suffix in ("svg", "png"):
                if f"figures/{name}.{suffix}" not in files:
                    run.remove(f"figures/{name}.{suffix}")
    except (OSError, UnsafeFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"cannot write the report to {place}: {reason}; free space or change permissions, then run 'pgherd report {run.argument}' again"
        ) from None
    return [directory / name for name in files]
