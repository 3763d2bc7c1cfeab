"""Runs that an earlier version recorded: what ``pgherd show`` makes of them stays the same.

tests/fixtures/runs has one run of each study, recorded with names of schema ``pgherd/run/1`` (run.json and all trial.json in one
compressed file), and beside it the expected output: the text of ``pgherd show`` and the paths of the keys of its JSON document. After
an intended change, write them again with ``python tests/cli/test_recorded_runs.py``, and read the difference before the commit.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgherd.cli import report, show
from pgherd.store.run_directory import RunDirectory

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in RUNS.glob("*.json.xz"))


def restored(name: str, root: Path) -> RunDirectory:
    """Write the recorded run into a run directory below ``root``."""
    document = json.loads(lzma.decompress((RUNS / f"{name}.json.xz").read_bytes()))
    path = root / document["run"]["run"]
    for trial in document["trials"]:
        directory = path / "trials" / trial["id"]
        directory.mkdir(parents=True)
        (directory / "trial.json").write_text(json.dumps(trial))
    (path / "run.json").write_text(json.dumps(document["run"]))
    return RunDirectory(path)


def shown(name: str, root: Path, *options: str) -> str:
    """Return the standard output of ``pgherd show`` in the directory of the runs, so that no other path is part of it."""
    directory = restored(name, root)
    with contextlib.chdir(root):
        arguments = ["--runs-dir", ".", directory.name, *options]
        result = CliRunner().invoke(show.command, arguments, env={"COLUMNS": "100"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def shown_again(directory: RunDirectory) -> str:
    """Return the JSON document of ``pgherd show`` for a run directory."""
    return CliRunner().invoke(show.command, [str(directory.path), "--json"], catch_exceptions=False).stdout


def key_paths(value: object, path: str = "") -> set[str]:
    """Return the paths of all keys. Elements of a list share one path."""
    if isinstance(value, dict):
        return {path} | {key_path for key, item in value.items() for key_path in key_paths(item, f"{path}.{key}")}
    if isinstance(value, list):
        return {path} | {result for item in value for result in key_paths(item, f"{path}[]")}
    return {path}


def numbers(findings: dict[str, dict[str, object]]) -> list[tuple[object, ...]]:
    """Return the numbers of all findings, without their names."""
    ends = [[finding[end] for end in ("value", "low", "high")] for finding in findings.values()]
    return sorted(tuple("none" if number is None else f"{number:.9g}" for number in three) for three in ends)


def numbers_text(analysis: dict[str, dict[str, dict[str, object]]]) -> str:
    """Return the grade of an analysis, and its numbers, one finding on each line."""
    return f"grade {analysis['grade']}\n" + "".join(" ".join(map(str, three)) + "\n" for three in numbers(analysis["findings"]))


def stored_analysis(name: str) -> dict[str, dict[str, dict[str, object]]]:
    """Return the analysis by the version that made a recorded run."""
    return json.loads(lzma.decompress((RUNS / f"{name}.json.xz").read_bytes()))["run"]["analysis"]


@pytest.mark.parametrize("name", NAMES)
def test_output_for_a_recorded_run(name, tmp_path):
    assert shown(name, tmp_path) == (RUNS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_keys_of_the_document_for_a_recorded_run(name, tmp_path):
    document = json.loads(shown(name, tmp_path, "--json"))
    assert "\n".join(sorted(key_paths(document))) + "\n" == (RUNS / f"{name}.keys").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_a_recorded_run_are_those_of_the_version_that_made_it(name, tmp_path):
    """A method that was corrected since gives other numbers: those are in a file of their own."""
    document = json.loads(shown(name, tmp_path, "--json"))
    corrected = RUNS / f"{name}.numbers"
    if corrected.exists():
        assert numbers_text(document) == corrected.read_text()
        assert numbers_text(document) != numbers_text(stored_analysis(name)), f"remove {corrected.name}: it has the original numbers"
    else:
        assert numbers_text(document) == numbers_text(stored_analysis(name))


@pytest.mark.parametrize("name", NAMES)
def test_report_converts_a_recorded_run(name, tmp_path):
    directory = restored(name, tmp_path)
    result = CliRunner().invoke(report.command, [str(directory.path)], catch_exceptions=False)
    assert result.exit_code == 0 and (directory.path / "report.html").is_file()
    record = json.loads((directory.path / "run.json").read_text())
    assert (
        record["schema"] == "pgherd/run/2"
        and record["analysis"]["findings"].keys() == json.loads(shown_again(directory))["findings"].keys()
    )


if __name__ == "__main__":
    for recorded in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            (RUNS / f"{recorded}.txt").write_text(shown(recorded, Path(folder) / "a"))
            document = json.loads(shown(recorded, Path(folder) / "b", "--json"))
            (RUNS / f"{recorded}.keys").write_text("\n".join(sorted(key_paths(document))) + "\n")
            (RUNS / f"{recorded}.numbers").unlink(missing_ok=True)
            if numbers_text(document) != numbers_text(stored_analysis(recorded)):
                (RUNS / f"{recorded}.numbers").write_text(numbers_text(document))
