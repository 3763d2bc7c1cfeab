"""Each command of the documents, as it is written, where a newcomer is: root in a checkout below its home, and an ordinary user."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pgherd.study.study import studies
from reports import NOT_RUN

ROOT = Path(__file__).parents[2]
NEEDED = ("docs", "extension", "scenarios", "src")
FILES = {
    "my.sql": "SELECT abalance FROM t;\n",
    "other.sql": "SELECT 1;\n",
    "schema.sql": "CREATE TABLE t AS SELECT 1 AS abalance;\n",
    "app/init.sql": "CREATE TABLE t AS SELECT 1 AS abalance;\n",
    "app/statement-001.sql": "SELECT abalance FROM t;\n",
    "table.csv": "clients,tps\n1,1050\n2,2010\n4,3900\n8,7200\n16,11400\n",
    "fleet.csv": "database,size,tps,peak hour\na,1GB,50,9:00\nb,2GB,80,14:00\n",
    "density.yaml": "study: density\n",
    "density-batch.yaml": "study: density\noptions: {scheduler: batch}\n",
    "before.yaml": "study: density\n",
    "after.yaml": "study: density\noptions: {set: [work_mem=8MB]}\n",
    "mine.yaml": "study: density\n",
}
"""Files that documents name, and the user writes."""
RUNS = {"BASELINE": "20260131-120000-density-0001", "RUN1": "20260131-120000-density-0001", "RUN2": "20260131-120000-density-0002"}
RUNS |= {"RUN": "20260131-120000-density-0002", "TRIAL": "1", "DIR": "pgherd-runs"}
CANNOT = 3
USELESS = "the curve of container memory is flat"
"""Warning of a plan that cannot find a working set."""
OPTIONS: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 200}
MOUNTS = "mount -t tmpfs -o mode=1777 tmpfs /mnt; mkdir -m 777 /mnt/wal /mnt/a /mnt/b"


def documents() -> ModuleType:
    """The module that finds the commands of documents."""
    specification = importlib.util.spec_from_file_location("documents", ROOT / "tests/test_documents.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


COMMANDS = {
    tuple(words): page for page in documents().documents() for words in documents().commands(page) if page.parts[1:2] != ("contributing",)
}
"""Command → the last page that has it."""


def reason(words: Sequence[str]) -> str | None:
    """Why a command is not run here."""
    return next((row.report for row in NOT_RUN if re.search(row.pattern, " ".join(words))), None)


def test_each_exception_is_one_of_a_command() -> None:
    lines = [" ".join(words) for words in COMMANDS]
    assert not [row for row in NOT_RUN if not any(re.search(row.pattern, line) for line in lines)]
    assert sum(reason(words) is None for words in COMMANDS) > len(COMMANDS) / 2


@pytest.fixture
def checkout(request: pytest.FixtureRequest, synthetic: ModuleType) -> Iterator[tuple[Path, list[str], dict[str, str]]]:
    """A checkout with files of the user and two runs, the words that change the user, and the environment."""
    if os.geteuid() != 0:
        pytest.skip("needs root to have a home that others cannot enter, to mount and to change the user")
    as_root = request.param == "root"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PGHERD_"))}
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgherd-test-", dir=Path.home() if as_root else "/tmp")))
        places = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgherd-test-", dir="/tmp")))
        places.chmod(0o755)
        directory = home / "pgherd"
        for name in NEEDED:
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (directory / "scenarios/fleet-200").iterdir():
            shutil.copy(path, directory)
        for name, text in FILES.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(text)
        for name in {name for name in RUNS.values() if "-density-" in name}:
            synthetic.write_run(directory / "pgherd-runs" / name, *synthetic.density_run(8, repeats=1, name=name))
        for samples in directory.glob("pgherd-runs/*/trials/*/samples"):
            shutil.rmtree(samples)
        environment |= {"HOME": str(home), "PYTHONPATH": str(directory / "src"), "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
        if as_root:
            environment |= {f"XDG_{kind}_HOME": str(places / kind) for kind in ("STATE", "CACHE")}
            yield directory, [], environment
            return
        for path in (home, *home.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
        yield directory, ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"], environment


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checkout", ["root", "nobody"], indirect=True)
@pytest.mark.parametrize("page", sorted({page for words, page in COMMANDS.items() if reason(words) is None}), ids=str)
def test_a_command_of_the_documents_works_as_it_is_written(page: Path, checkout: tuple[Path, list[str], dict[str, str]], pgherd) -> None:
    directory, user, environment = checkout
    failed = []
    for words in (words for words, where in COMMANDS.items() if where == page and reason(words) is None):
        argv = ["unshare", "--mount", "sh", "-c", f'{MOUNTS}; exec "$@"', "sh", *user, sys.executable, "-P", "-m", "pgherd"]
        with pgherd.cleaning_alone() if words[0] == "clean" else contextlib.nullcontext():
            ended = subprocess.run([*argv, *changed(words)], **OPTIONS, cwd=directory, env=environment)
        unable = ended.returncode == CANNOT and "cannot enter" not in ended.stderr
        # A failed check, grade or gate is a result, and has no error message. A bug of pgherd has one, and its traceback is in a file.
        failed_itself = ended.returncode == 1 and re.search(r"^pgherd: ", ended.stderr, re.MULTILINE)
        print(ended.returncode, *words)
        useless = USELESS in " ".join(ended.stdout.split())
        if failed_itself or useless or not (ended.returncode in (0, 1) or unable):
            failed.append(f"{' '.join(words)}: {ended.returncode}\n{ended.stdout[-300:]}{ended.stderr[-600:]}")
    assert not failed, "\n\n".join(failed)


@pytest.mark.long
def test_a_comparison_by_a_value_with_a_comma_has_a_result(pgherd) -> None:
    """A plan does not show whether its servers can be warmed and loaded."""
    (words,) = (words for words in COMMANDS if words[0] == "compare" and any('"' in word for word in words))
    few = ("--scale", "1", "--duration", "1s", "--warmup", "0s", "--max-blocks", "1", "--host-memory", "1GB", "--no-report")
    ended = pgherd(*words, *few)
    assert ended.code in (0, 1), ended
    trials = pgherd.trials()
    assert trials and not [trial["error"] for trial in trials if trial["error"]], ended


def changed(words: Sequence[str]) -> list[str]:
    """The words with names of runs, and for a study its plan only: most take minutes."""
    given = [RUNS.get(word, word) for word in words]
    if given[0] not in (*studies(), "run", "balloon") or "--dry-run" in given or "--print-schema" in given or "openssl" in given:
        return given
    end = given.index("--") if "--" in given else len(given)
    return [*given[:end], "--dry-run", *given[end:]]
