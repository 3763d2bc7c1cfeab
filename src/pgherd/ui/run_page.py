"""Page of a run: answer, tables, figures, checks and files, and its present state while it runs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from pgherd.metrics.run_metrics import host_name
from pgherd.model.text import clean
from pgherd.node.files import UnsafeFileError, read_head
from pgherd.report import formatting, html_model
from pgherd.report.data_files import leading, notices
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.app_state import state_of
from pgherd.ui.shown_runs import SHOWN, LoadedRun

SANDBOX = (
    "sandbox allow-same-origin; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Policy for the files of a run. Their origin may be unknown, so they may not run scripts, send forms or load anything.

They keep the origin of this server, because links from another origin to further files would lack the session's cookie. Such links can only
read, because every change is a POST with a form token.
"""
_TYPES = {".html": "text/html", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".csv": "text/csv"}
_SERVED = re.compile(r"run\.json|report\.(html|json)|figures/[\w.-]+\.(svg|png)|tables/[\w.-]+\.csv|trials/\d+/trial\.json")
_TITLE = re.compile(r'<text[^>]*font-weight="600"[^>]*>([^<]*)')
_HEAD_BYTES = 20_000
_LATEST_TRIALS = 12
_REPORT_TIMEOUT_S = 45.0
_REPORT_SETTLED_S = 1.5


def run(request: Request) -> Response:
    app = state_of(request)
    loaded = app.cache.read(app.run(request))
    snapshot = app.live.poll(loaded.directory) if loaded.record.state == "running" else None
    state = snapshot.present.state if snapshot else loaded.record.state
    awaited = state == "finished" and report_awaited(loaded.directory, loaded.record.ended, time.time())
    return app.page(
        "run.html.j2", **_context(loaded), state=state, snapshot=snapshot, latest=_LATEST_TRIALS, seconds=SHOWN, awaited=awaited
    )


def live(request: Request) -> Response:
    """Return the part of the page that changes while the run is executed."""
    app = state_of(request)
    directory = app.run(request)
    snapshot = app.live.poll(directory)
    present = snapshot.present
    if present.state == "finished" and report_awaited(directory, present.ended, present.at):
        return Response("Generating the report …", media_type="text/plain")
    if present.state != "running":
        return Response(headers={"HX-Refresh": "true"})
    return app.page("live_part.html.j2", run=directory.name, snapshot=snapshot, latest=_LATEST_TRIALS, seconds=SHOWN)


def file(request: Request) -> Response:
    """Return a report, figure, table or record of a run. Raises HTTPException (404) for other files."""
    directory, path = state_of(request).run(request), request.path_params["path"]
    target = directory.path / path
    if not _SERVED.fullmatch(path) or not inside(target, directory.path):
        raise HTTPException(404, "The run has no such file, or not yet.")
    return FileResponse(target, media_type=_TYPES[target.suffix], headers={"Content-Security-Policy": SANDBOX})


def report_awaited(directory: RunDirectory, ended: float | None, now: float) -> bool:
    """Return True while a run that has just ended may still get its report.

    The report is written file by file. With ``--no-report`` there is none, so the wait has a limit.
    """
    if ended is None or now - ended > _REPORT_TIMEOUT_S:
        return False
    try:
        return now - (directory.path / "report.html").stat().st_mtime < _REPORT_SETTLED_S
    except OSError:
        return True


def inside(path: Path, directory: Path) -> bool:
    """Return True if the path is a file inside the run. A symbolic link could point elsewhere."""
    return path.is_file() and path.resolve().is_relative_to(directory.resolve())


def _context(loaded: LoadedRun) -> dict[str, Any]:
    record, analysis = loaded.record, loaded.record.analysis
    tables = {name: rows for name, rows in analysis.tables.items() if rows} if analysis else {}
    first = leading(record.study, tables)
    return {
        "run": loaded.name,
        "record": record,
        "trials": len(loaded.results),
        "answer": clean(analysis.answer) if analysis else formatting.no_answer(record.state, record.error),
        "grade": analysis.grade if analysis else None,
        "grade_meaning": formatting.grade_text(analysis, len(loaded.results)) if analysis else "",
        "details": [clean(text) for text in analysis.details] if analysis else [],
        "main_table": html_model.main_table(first, tables[first]) if first else None,
        "findings": html_model.findings_table(analysis.findings) if analysis and analysis.findings else None,
        "warnings": [clean(text) for text in analysis.warnings] if analysis else [],
        "next_steps": [clean(text) for text in analysis.next_steps] if analysis else [],
        "notices": notices(record),
        "figures": _figures(loaded.directory),
        "matrix": html_model.check_matrix(loaded.results),
        "exceptions": html_model.exceptions(loaded.results),
        "hosts": [clean(host_name(record, name)) for name in record.hosts],
        "files": [name for name in ("report.html", "report.json", "run.json") if (loaded.directory.path / name).is_file()],
        "tables": _tables(loaded.directory),
        "sampled": any((loaded.directory.path / "trials" / result.id / "samples").is_dir() for result in loaded.results),
        "resumable": record.state != "finished" and record.environment is not None,
        "started": formatting.instant(record.started),
        "ended": formatting.instant(record.ended),
        "point": formatting.point_text,
    }


def _tables(directory: RunDirectory) -> list[str]:
    return sorted(path.name for path in (directory.path / "tables").glob("*.csv") if _SERVED.fullmatch(f"tables/{path.name}"))


def _figures(directory: RunDirectory) -> list[tuple[str, str]]:
    """Return (file, title) of the report's figures."""
    figures = []
    for path in sorted((directory.path / "figures").glob("*.svg")):
        if _SERVED.fullmatch(f"figures/{path.name}") and inside(path, directory.path):
            figures.append((path.name, _title(path)))
    return figures


def _title(path: Path) -> str:
    """Return the title of a figure as its alternative text."""
    try:
        lines = _TITLE.findall(read_head(path, _HEAD_BYTES).decode(errors="replace"))
    except (OSError, UnsafeFileError):
        lines = []
    return clean(" ".join(lines[:3])) or f"figure {clean(path.stem)}"
