from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.report.write_report import build


@pytest.fixture
def directory(synthetic, run8, tmp_path) -> Path:
    return synthetic.write_run(tmp_path / "run", *run8)


def names(paths, directory):
    return sorted(str(path.relative_to(directory)) for path in paths)


def test_everything_is_written_and_named(directory, run8):
    written = build(directory, *run8)
    assert written[0] == directory / "report.html"
    drawn = ("cpu", "efficiency", "fairness", "latency", "order", "published", "seconds", "throughput")
    assert names(written, directory) == sorted(
        [
            "report.html",
            "report.json",
            *(f"figures/{name}.svg" for name in drawn),
            *(f"tables/{t}.csv" for t in ("cpu", "density", "models")),
        ]
    )
    assert all(path.stat().st_size > 0 for path in written)
    assert not list(directory.rglob("*.tmp"))
    assert json.loads((directory / "report.json").read_text())["run"] == run8[0].run


def test_a_report_made_again_is_the_same(directory, run8):
    first = {path: path.read_bytes() for path in build(directory, *run8)}
    assert {path: path.read_bytes() for path in build(directory, *run8)} == first


def test_png_only_when_asked_and_never_stale(directory, run8, synthetic):
    assert {path.suffix for path in build(directory, *run8, png=True) if path.parent.name == "figures"} == {".svg", ".png"}
    (directory / "figures" / "mine.svg").write_text("<svg/>")
    build(directory, synthetic.without_numbers(run8[0]), run8[1])
    left = {path.name for path in (directory / "figures").iterdir()}
    assert left == {"fairness.svg", "order.svg", "seconds.svg", "mine.svg"}


def test_40_databases_for_a_minute_stay_below_3_mb(synthetic, tmp_path):
    record, results = synthetic.density_run(40, seconds=60)
    directory = synthetic.write_run(tmp_path / "run", record, results)
    assert build(directory, record, results)[0].stat().st_size < 3_000_000


def test_without_figures_no_plotting_library_is_imported(directory, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from pgherd.report.write_report import build; from pgherd.store.run_directory import RunDirectory\n"
        "run = RunDirectory(Path(sys.argv[1])); paths = build(run.path, run.record(), run.results(), figures=False)\n"
        "print(len(paths), sorted({'altair', 'vl_convert', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "5 []"
    assert "not requested" in (directory / "report.html").read_text()


def test_a_run_without_analysis_still_gets_its_page(directory, run8):
    written = build(directory, run8[0].model_copy(update={"analysis": None, "state": "interrupted"}), [])
    assert names(written, directory) == ["report.html", "report.json"]


def test_a_directory_that_cannot_be_written_is_a_message(run8, tmp_path):
    (tmp_path / "run").write_text("not a directory")
    with pytest.raises(UsageError, match=f"cannot write the report to {tmp_path}.*pgherd report"):
        build(tmp_path / "run", *run8, figures=False)


def test_a_failed_write_leaves_the_report_before_it(directory, run8, monkeypatch):
    before = build(directory, *run8, figures=False)[0].read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        build(directory, run8[0].model_copy(update={"analysis": None}), [], figures=False)
    assert (directory / "report.html").read_bytes() == before
