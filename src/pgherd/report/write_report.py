"""Write the report into a run's directory: HTML, JSON, CSV, and the figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import data_files, html_render
from pgherd.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from pgherd.report.drawing import RenderedFigure


def build(directory: Path, record: RunRecord, results: Sequence[TrialResult], *, figures: bool = True, png: bool = False) -> list[Path]:
    """Write ``report.html``, ``report.json``, ``tables/*.csv`` and ``figures/*.svg`` (``*.png`` too, if asked).

    Every file appears whole or not at all (temporary name, sync, rename). A figure of an earlier report that can no
    longer be drawn is removed, lest it be taken for current. Returns the files written, ``report.html`` first.

    Raises:
        UsageError: the directory cannot be written.
    """
    files: dict[str, bytes] = {}
    drawn: list[RenderedFigure] = []
    left_out: dict[str, str] = {}
    known: set[str] = set()
    if figures and record.analysis:
        from pgherd.report import drawing  # altair costs 0.3 s of CPU: only where something is drawn

        drawn, left_out = drawing.draw(drawing.FigureInputs(record, record.analysis, results, directory))
        known = set(drawing.builders(record.study))
        for one in drawn:
            files[f"figures/{one.name}.svg"] = one.svg.encode()
            if png:
                files[f"figures/{one.name}.png"] = drawing.png(one.svg)
    elif figures:
        left_out = {"all": "there is no analysis to draw from"}
    else:
        left_out = {"all": "they were not asked for"}
    page = html_render.render(record, results, drawn, left_out, directory)
    files = {"report.html": page.encode(), "report.json": data_files.document_text(record, results).encode(), **files}
    if record.analysis:
        files |= {f"tables/{name}": text.encode() for name, text in data_files.csv_files(record.analysis).items()}
    run = RunDirectory(directory)
    try:
        for name, data in files.items():
            run.write(name, data)
        for name in known:
            for suffix in ("svg", "png"):
                if f"figures/{name}.{suffix}" not in files:
                    (directory / "figures" / f"{name}.{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"the report cannot be written into {directory}: {error.strerror}; make room or rights there, and run "
            f"'pgherd report {record.run}' again"
        ) from None
    return [directory / name for name in files]
