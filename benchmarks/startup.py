"""The CPU that ``pgherd --help`` takes, against ``python -c 'import click'`` of the same Python.

CPU is user and system time of the process, from wait4(2). Bytecode is there (each side runs once before it counts).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import CapabilityError

GOAL = 2.0


def main() -> None:
    """Measure, print, write."""
    options = outcome.parser(__doc__, 30, "pairs").parse_args()
    pairs = options.pairs or (10 if options.quick else 30)
    seed = outcome.seed_of(options)
    script = Path(sys.executable).parent / "pgherd"
    if not script.is_file():
        raise CapabilityError(f"{script} is not there; call this with the Python of the environment that pgherd is installed in")
    # As the launcher ./pgherd calls it: isolated, so that nothing from here can slip in.
    commands = {"plain": [sys.executable, "-I", "-c", "import click"], "pgherd": [sys.executable, "-I", str(script), "--help"]}
    for command in commands.values():
        cpu_of(command)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()

    def said(number: int, pair: dict[str, float]) -> bool:
        raw.append(pair)
        return False

    paired.run_blocks(
        pairs, random.Random(seed), {side: lambda command=command: cpu_of(command) for side, command in commands.items()}, said
    )
    outcome.conclude(outcome.Outcome("startup", options.quick, seed, {}, figures(raw), raw, outcome.noise_since(before)), options)


def figures(raw: Sequence[Mapping[str, float]]) -> list[Figure]:
    """Return the ratio, and both commands' CPU."""
    found = paired.ratio([pair["pgherd"] for pair in raw], [pair["plain"] for pair in raw])
    made = [Figure.of("CPU of pgherd --help ÷ import click", "", found, f"≤ {GOAL:g}", outcome.met(found, most=GOAL))]
    for name, side in (("pgherd --help", "pgherd"), ("python -c 'import click'", "plain")):
        made.append(Figure.of(name, "CPU ms", mean_interval([1000 * pair[side] for pair in raw])))
    return made


def cpu_of(command: list[str]) -> float:
    """CPU seconds of a command that must end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(command, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CapabilityError(f"{command} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    outcome.run(main)
