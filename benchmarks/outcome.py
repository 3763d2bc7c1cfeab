"""Outcome of a benchmark: figures and goals as a table, a JSON file, and a section of docs/reference/results.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pgherd
from pgherd.analysis.intervals import Estimate
from pgherd.host.facts import gather
from pgherd.model.errors import PgherdError, UsageError
from pgherd.node import interruption
from pgherd.node.local import LocalNode

HOME = Path(__file__).parent
RESULTS = HOME / "results"
SCHEMA = "pgherd/benchmark/1"
ORDER = (
    "presence",
    "throughput",
    "scheduler",
    "log_cost",
    "repeated",
    "settling",
    "repeatability",
    "slo_repeatability",
    "sampling",
    "metrics_cost",
    "fleet_cost",
    "provision",
    "orders",
    "startup",
    "first_use",
    "measuring",
    "report",
    "ui",
    "placement",
    "plan_truth",
    "tenants",
    "isolation",
    "balloon",
    "balloon_native",
    "balloon_grid",
    "balloon_oracle",
    "limit_changes",
    "controller_constants",
    "controller_constants_real",
    "cluster",
    "cluster_hundred",
    "coverage",
    "coverage_models",
    "false_positives",
    "gate_alarms",
    "steal_pairs",
    "known_truth",
    "slo_truth",
    "guests",
    "long_check",
)


@dataclass(frozen=True)
class Figure:
    """One measured quantity. ``goal`` is in words; ``met`` is None where there is no goal, or the data cannot say."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    n: int = 1
    method: str = ""
    goal: str = ""
    met: bool | None = None
    note: str = ""

    def __post_init__(self) -> None:
        """Leave open whether a goal is met by a single measurement."""
        if self.n < 2:
            object.__setattr__(self, "met", None)

    @classmethod
    def of(cls, name: str, unit: str, estimate: Estimate, goal: str = "", met: bool | None = None, note: str = "") -> Figure:
        """A figure from an estimate with its interval."""
        said = "; ".join(filter(None, (note, estimate.note)))
        return cls(name, estimate.value, unit, estimate.low, estimate.high, estimate.n, estimate.method, goal, met, said)


class Interval(Protocol):
    """Two ends, as of an Estimate or of what scipy finds; both None where the data support none."""

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def met(found: Interval, *, least: float = -math.inf, most: float = math.inf) -> bool | None:
    """Whether a goal is met: the whole interval lies within it; missed: none of it does.

    None, which the data cannot say: the interval holds an end of the goal, or there is none, as of a single repeat.
    """
    if found.low is None or found.high is None:
        return None
    if least <= found.low and found.high <= most:
        return True
    return False if found.high < least or found.low > most else None


@dataclass
class Outcome:
    """One execution of a benchmark. ``raw`` holds every single measurement, from which the figures were made."""

    benchmark: str
    quick: bool
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    raw: list[dict[str, Any]] = field(default_factory=list)
    noise: dict[str, float] = field(default_factory=dict)


def parser(description: str | None, pairs: int, pairs_help: str) -> argparse.ArgumentParser:
    """The options that all benchmarks share. ``pairs`` is the number of pairs (or repeats) of a full run."""
    commit()  # a commit made during the run is not the one that is measured
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--pairs", type=int, metavar="N", help=f"{pairs_help}  [default: {pairs}]")
    made.add_argument("--quick", action="store_true", help="a minute at most, to see that it works; its numbers mean little")
    made.add_argument("--seed", type=int, help="seed of the order  [default: random, recorded]")
    made.add_argument("--out", type=Path, metavar="FILE", help="where to write  [default: results/NAME.json; --quick: nowhere]")
    made.add_argument("--machine", metavar="TEXT", help="the machine in general words  [default: CPUs and memory, as found]")
    return made


def seed_of(options: argparse.Namespace) -> int:
    """The seed that was asked for, or a new one."""
    return random.randrange(2**31) if options.seed is None else int(options.seed)


def machine_words() -> str:
    """The machine in general words: '2 virtual CPUs, shared, 24 GB of memory'. Shared: the hypervisor has taken time away."""
    facts = gather(LocalNode())
    words = [f"{facts.logical_cpus} {'virtual ' if facts.virtualisation else ''}CPUs"]
    if facts.cores < facts.logical_cpus:
        words.append(f"{facts.cores:g} of them usable")
    if facts.virtualisation and cpu_seconds()["steal"] > 0:
        words.append("shared")
    return ", ".join([*words, f"{facts.memory / 1e9:.0f} GB of memory"])


def cpu_seconds() -> dict[str, float]:
    """Seconds that all CPUs together were busy, and that the hypervisor took, since boot (/proc/stat)."""
    tick = os.sysconf("SC_CLK_TCK")
    cells = [int(cell) / tick for cell in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return {"busy": sum(cells[:3]) + sum(cells[5:7]), "steal": cells[7], "all": sum(cells[:8])}


def noise_since(before: dict[str, float]) -> dict[str, float]:
    """Shares of all CPU time since ``before``: how busy the machine was in all, and what the hypervisor took."""
    after = cpu_seconds()
    passed = max(after["all"] - before["all"], 1e-9)
    return {"busy share": (after["busy"] - before["busy"]) / passed, "steal share": (after["steal"] - before["steal"]) / passed}


_added_to: dict[str, str] = {}
"""Date and commit of the first measurements of a result that this process adds to."""
_before: list[dict[str, Any]] = []
"""The earlier runs of that result. Their arguments are None if they were not recorded."""
RUN = ("date", "commit", "arguments", "machine", "seed", "noise")
"""What a document has of each run of which it has measurements."""
MEASURED = ("../src", "../extension", ":!../extension/pg_balloon/RESULTS.md")
"""Paths of what is measured, for git. Other benchmarks write that page."""


def blocks_before(benchmark: str, options: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """What the last result measured one by one, so that quiet hours add up.

    Raises:
        UsageError: there is none, or it was measured with other settings.
    """
    found: list[dict[str, Any]] = document_before(benchmark, options, settings, "--more")["raw"]
    return found


def document_before(
    benchmark: str, options: argparse.Namespace, settings: dict[str, Any], asked: str, free: Collection[str] = ()
) -> dict[str, Any]:
    """The last result, which the option ``asked`` adds to. Settings named in ``free`` may be others.

    Raises:
        UsageError: there is none, or it was measured with other settings.
    """
    file = options.out or RESULTS / f"{benchmark}.json"
    if not file.is_file():
        raise UsageError(f"{asked}: there is no {file} to add to; leave {asked} out")
    document: dict[str, Any] = json.loads(file.read_text())
    global _added_to, _before
    then, now = ({name: value for name, value in all_.items() if name not in free} for all_ in (document["settings"], settings))
    if then != now:
        raise UsageError(f"{asked}: {file} was measured with {then}, not with {now}; leave {asked} out")
    _added_to = document.get("first") or {"date": document.get("date", ""), "commit": document.get("commit", "")}
    run = {name: document[name] for name in RUN if name in document}
    known = "before" in document or "first" not in document
    _before = [*document.get("before", []), {**run, "arguments": run.get("arguments") if known else None}]
    return document


def conclude(outcome: Outcome, options: argparse.Namespace) -> None:
    """Print the table; write the JSON, and the pages of results if this is the committed result of the benchmark."""
    show(outcome.figures)
    target = store(outcome, options)
    if target is None:
        print("\n--quick: nothing written")
        return
    print(f"\nwrote {target}")
    if target == RESULTS / f"{outcome.benchmark}.json":
        from results_page import write_pages  # imports this module

        write_pages()


def store(outcome: Outcome, options: argparse.Namespace) -> Path | None:
    """Write the JSON of what there is so far; None where nothing is to be written (--quick without --out)."""
    target: Path | None = options.out or (None if outcome.quick else RESULTS / f"{outcome.benchmark}.json")
    if target is None:
        return None
    document = {
        "schema": SCHEMA,
        "benchmark": outcome.benchmark,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        **({"first": _added_to, "before": _before} if _added_to else {}),
        "arguments": _arguments(sys.argv[1:]),
        "pgherd": pgherd.__version__,
        "quick": outcome.quick,
        "machine": options.machine or machine_words(),
        "python": platform.python_version(),
        "seed": outcome.seed,
        "settings": outcome.settings,
        "noise": outcome.noise,
        "figures": [asdict(figure) for figure in outcome.figures],
    }
    write(target, document_text(document, outcome.raw))
    return target


def _arguments(words: Sequence[str]) -> list[str]:
    """Arguments without files and without the name of the machine, which the document has."""
    kept = [word for before, word in pairwise(["", *words]) if before not in ("--out", "--machine")]
    return [word for word in kept if word not in ("--out", "--machine") and "/" not in word]


@cache
def commit() -> str:
    """The commit that is measured, with a '+' if src differs from it; empty outside of a clone. It is read once, at the start."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HOME).stdout.strip()[:12]
    changed = head and subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *MEASURED], cwd=HOME).returncode != 0
    return f"{head}+" if changed else head


def commits_since(measured: str) -> int | None:
    """Number of commits to what is measured since a measured commit; None if git does not know it."""
    counted = subprocess.run(
        ["git", "rev-list", "--count", f"{measured.rstrip('+')}..HEAD", "--", *MEASURED],
        capture_output=True,
        text=True,
        cwd=HOME,
    )
    return int(counted.stdout) if measured and counted.returncode == 0 else None


def document_text(document: dict[str, Any], raw: Sequence[dict[str, Any]]) -> str:
    """The JSON document, with each row of ``raw`` on a line of its own at the end. Raises ValueError for NaN and infinity."""
    head = json.dumps(_rounded(document), indent=1, allow_nan=False, ensure_ascii=False)
    rows = ",\n".join("  " + json.dumps(_rounded(row), allow_nan=False, ensure_ascii=False) for row in raw)
    return f'{head.removesuffix("}").rstrip()},\n "raw": [\n{rows}\n ]\n}}\n'


def write(target: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(target)


def _rounded(value: Any) -> Any:
    """Floats to seven digits: more say nothing, and make the committed files longer."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def show(figures: Sequence[Figure]) -> None:
    """Print the figures as a table."""
    rows = [("figure", "value", "interval", "n", "goal", "met")]
    rows += [(f.name, value_text(f), interval_text(f), str(f.n), f.goal, met_text(f)) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    notes = [note for figure in figures for note in figure.note.split("; ") if note]
    for note in dict.fromkeys(notes):
        about = [figure.name for figure in figures if note in figure.note.split("; ")]
        print(f"  {about[0]}{' and others' if len(about) > 1 else ''}: {note}")


def value_text(figure: Figure) -> str:
    """The value with as many digits as its interval supports, and its unit."""
    return f"{number_text(figure.value, figure)} {figure.unit}".rstrip()


def interval_text(figure: Figure) -> str:
    """The interval; empty where there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{number_text(figure.low, figure)} to {number_text(figure.high, figure)}"


def met_text(figure: Figure) -> str:
    """Whether the goal is met."""
    if not figure.goal:
        return ""
    return {True: "yes", False: "no", None: "inconclusive"}[figure.met]


def number_text(value: float, figure: Figure) -> str:
    """The number with as many digits as the figure's interval supports."""
    wide = (figure.high - figure.low) / 2 if figure.low is not None and figure.high is not None else abs(figure.value) / 100
    return f"{value:,.{max(0, min(6, 1 - math.floor(math.log10(wide))) if wide > 0 else 3)}f}"


def say(text: str) -> None:
    """Print a line of progress, also while a live display has put itself in stdout's place."""
    print(text, file=sys.__stdout__, flush=True)


def run(main: Any) -> None:
    """Call a benchmark's main; an error of pgherd is one message and its exit code, and so is an interruption.

    Ctrl-C, SIGTERM and SIGHUP end it in order, as they end a verb: what it has made is taken back.
    """
    try:
        with interruption.ended_by_signals():
            main()
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
        sys.exit(130)
    except PgherdError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
