"""How long a machine that has Python alone takes to its first measured number: `./pgherd density` in a fresh checkout.

The environment is made from the registry with an empty cache, so that what it downloads is counted. The run is the default one, by the
PostgreSQL that came with the environment; it is interrupted once its first trial has succeeded.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import TrialError

ROOT = outcome.HOME.parent
NEEDED = ("pgherd", "environment", "src")
GOAL = 60.0
PATIENCE = 600.0
ENVIRONMENT, NUMBER = "environment s", "first number s"


def main() -> None:
    """Measure, print, write."""
    options = outcome.parser(__doc__, 3, "fresh checkouts (there are no pairs)").parse_args()
    words = ["--scale", "1", "--databases", "1", "--duration", "1s"] if options.quick else []
    seed = outcome.seed_of(options)
    before = outcome.cpu_seconds()
    raw = []
    for number in range(options.pairs or (1 if options.quick else 3)):
        raw.append(first_use(["density", "--pg-version", "18", "--no-report", "--seed", str(seed + number), *words]))
        outcome.say(f"{number + 1}: " + ", ".join(f"{name} {value:.1f}" for name, value in raw[-1].items()))
    outcome.conclude(outcome.Outcome("first_use", options.quick, seed, {}, figures(raw), raw, outcome.noise_since(before)), options)


def figures(raw: Sequence[Mapping[str, float]]) -> list[Figure]:
    """Return the seconds of both steps."""
    made = []
    for what, name in (("the environment, made on first use", ENVIRONMENT), ("from there to the first measured number", NUMBER)):
        found = mean_interval([row[name] for row in raw])
        made.append(Figure.of(what, "s", found, f"≤ {GOAL:g} s", outcome.met(found, most=GOAL)))
    return made


def first_use(words: list[str]) -> dict[str, float]:
    """Seconds of both steps in a checkout, with caches, of its own.

    Raises:
        TrialError: pgherd ended or took too long before a trial had succeeded, or did not end when it was interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as name:
        home = Path(name)
        home.chmod(0o755)  # the servers' account goes through it
        checkout, runs = home / "checkout", home / "runs"
        checkout.mkdir()
        for one in NEEDED:
            copy: Callable[..., object] = shutil.copytree if (ROOT / one).is_dir() else shutil.copy2
            copy(ROOT / one, checkout / one)
        for cache in [*checkout.rglob("__pycache__"), *checkout.rglob(".*_cache")]:
            shutil.rmtree(cache)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PGHERD_", "XDG_"))}
        places = {"HOME": name, "XDG_CACHE_HOME": f"{name}/cache", "XDG_STATE_HOME": f"{name}/state", "PGHERD_RUNS": str(runs)}
        with open(home / "stderr", "w+") as said:
            began = time.monotonic()
            process = subprocess.Popen(
                [checkout / "pgherd", *words],
                env=kept | places,
                cwd=name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            try:
                made = _until(process, lambda: (checkout / ".venv/requirements.lock").exists(), said.name)
                measured = _until(process, lambda: _succeeded(runs), said.name)
            finally:
                _end(process)
    return {ENVIRONMENT: made - began, NUMBER: measured - made}


def _succeeded(runs: Path) -> bool:
    """Whether any trial has numbers: one that failed has none."""
    return any(not json.loads(file.read_text()).get("error") for file in runs.glob("*/trials/[0-9]*/trial.json"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt it with all that its launcher has started, which may yet make the environment; it takes back what it has made."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise TrialError(f"pgherd did not end within {PATIENCE:g} s of its interruption, and was killed") from None


def _until(process: subprocess.Popen[bytes], there: Callable[[], bool], said: str) -> float:
    """The instant (monotonic seconds) at which something is there."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TrialError(f"pgherd measured nothing, and said: {Path(said).read_text().strip()[-500:]}")
        time.sleep(0.05)
    return time.monotonic()


if __name__ == "__main__":
    outcome.run(main)
