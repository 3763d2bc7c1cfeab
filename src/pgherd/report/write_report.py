"""Write the report into a run's directory: HTML, JSON, CSV and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.node import files as node_files
from pgherd.node.files import UnsafeFileError
from pgherd.report import data_files, html_render
from pgherd.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from pgherd.report.drawing import RenderedFigure


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
    page = html_render.render(record, results, rendered, left_out, directory)
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
            f"cannot write the report to {place}: {reason}; free space or change permissions, then run 'pgherd report {record.run}' again"
        ) from None
    return [directory / name for name in files]
