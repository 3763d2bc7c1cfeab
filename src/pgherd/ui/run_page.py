"""One run: its answer, tables, figures and verdicts; while it runs, what it does at present; and its files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from pgherd.metrics.run_metrics import host_name
from pgherd.report import formatting, html_model
from pgherd.report.data_files import leading, notices
from pgherd.report.formatting import clean
from pgherd.store.run_directory import RunDirectory
from pgherd.ui.reading import Whole
from pgherd.ui.site import site_of
from pgherd.ui.watching import SHOWN

_SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""For what a run directory holds: it may be somebody else's, so nothing in it runs."""
_TYPES = {".html": "text/html", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".csv": "text/csv"}
_SERVED = re.compile(r"run\.json|report\.(html|json)|figures/[\w.-]+\.(svg|png)|tables/[\w.-]+\.csv|trials/\d+/trial\.json")
_TITLE = re.compile(r'<text[^>]*font-weight="600"[^>]*>([^<]*)')
_HEAD = 20_000
_LATEST = 12
_REPORT_WITHIN = 45.0
_WRITTEN_WITHIN = 1.5


def run(request: Request) -> Response:
    """The page of a run."""
    site = site_of(request)
    whole = site.reader.read(site.run(request))
    seen = site.watching.look(whole.directory) if whole.record.state == "running" else None
    state = seen.present.state if seen else whole.record.state
    awaited = state == "finished" and report_awaited(whole.directory, whole.record.ended, time.time())
    return site.page("run.html.j2", **_whole(whole), state=state, seen=seen, latest=_LATEST, seconds=SHOWN, awaited=awaited)


def live(request: Request) -> Response:
    """The part of the page that changes while the run is executed."""
    site = site_of(request)
    directory = site.run(request)
    seen = site.watching.look(directory)
    present = seen.present
    if present.state == "finished" and report_awaited(directory, present.ended, present.at):
        return Response("Its report is being made …", media_type="text/plain")
    if present.state != "running":
        return Response(headers={"HX-Refresh": "true"})
    return site.page("live_part.html.j2", run=directory.name, seen=seen, latest=_LATEST, seconds=SHOWN)


def file(request: Request) -> Response:
    """A file of a run that a reader may want: report, figures, tables, records. Raises HTTPException (404) for any other."""
    directory, path = site_of(request).run(request), request.path_params["path"]
    place = directory.path / path
    if not _SERVED.fullmatch(path) or not _inside(place, directory.path):
        raise HTTPException(404, "A run has no such file, or not yet.")
    return FileResponse(place, media_type=_TYPES[place.suffix], headers={"Content-Security-Policy": _SANDBOX})


def report_awaited(directory: RunDirectory, ended: float | None, now: float) -> bool:
    """Whether a run that has just ended is still to get its report, which is written file by file, or does not come at all
    (``--no-report``)."""
    if ended is None or now - ended > _REPORT_WITHIN:
        return False
    try:
        return now - (directory.path / "report.html").stat().st_mtime < _WRITTEN_WITHIN
    except OSError:
        return True


def _inside(place: Path, directory: Path) -> bool:
    """Whether it is a file that really lies in the run: a link may lead anywhere."""
    return place.is_file() and place.resolve().is_relative_to(directory.resolve())


def _whole(whole: Whole) -> dict[str, Any]:
    record, analysis = whole.record, whole.record.analysis
    held = {name: rows for name, rows in analysis.tables.items() if rows} if analysis else {}
    first = leading(record.study, held)
    return {
        "run": whole.name,
        "record": record,
        "trials": len(whole.results),
        "answer": clean(analysis.answer) if analysis else formatting.no_answer(record.state, record.error),
        "grade": analysis.grade if analysis else None,
        "grade_meaning": formatting.grade_meaning(analysis.grade, len(whole.results)) if analysis else "",
        "main_table": html_model.main_table(first, held[first]) if first else None,
        "findings": html_model.findings_table(analysis.findings) if analysis and analysis.findings else None,
        "warnings": [clean(text) for text in analysis.warnings] if analysis else [],
        "look_at": [clean(text) for text in analysis.look_at] if analysis else [],
        "notices": notices(record),
        "figures": _figures(whole.directory),
        "matrix": html_model.check_matrix(whole.results),
        "exceptions": html_model.exceptions(whole.results),
        "hosts": [clean(host_name(record, name)) for name in record.hosts],
        "files": [name for name in ("report.html", "report.json", "run.json") if (whole.directory.path / name).is_file()],
        "tables": _tables(whole.directory),
        "sampled": any((whole.directory.path / "trials" / result.id / "samples").is_dir() for result in whole.results),
        "resumable": record.state != "finished" and record.surroundings is not None,
        "started": formatting.instant(record.started),
        "ended": formatting.instant(record.ended),
        "point": formatting.point_text,
    }


def _tables(directory: RunDirectory) -> list[str]:
    return sorted(path.name for path in (directory.path / "tables").glob("*.csv") if _SERVED.fullmatch(f"tables/{path.name}"))


def _figures(directory: RunDirectory) -> list[tuple[str, str]]:
    """(file, what it says) of the report's figures."""
    found = []
    for path in sorted((directory.path / "figures").glob("*.svg")):
        if _SERVED.fullmatch(f"figures/{path.name}") and _inside(path, directory.path):
            found.append((path.name, _title(path)))
    return found


def _title(path: Path) -> str:
    """The sentence that a figure of ours has as its title, for those who cannot see it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = _TITLE.findall(file.read(_HEAD))
    except OSError:
        lines = []
    return clean(" ".join(lines[:3])) or f"figure {clean(path.stem)}"
