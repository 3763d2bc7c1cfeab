"""Samples written by a process of its own, where this one lives on and is to stay small: an agent, from one trial to the next.

The engine that writes them takes some 60 MB, most of it its own code, and a process that has once had it keeps it.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pgherd.model.errors import TrialError
from pgherd.store.samples import Sample, write_samples


def write_samples_apart(directory: Path, samples: Iterable[Sample]) -> None:
    """As ``write_samples``. Raises TrialError when that fails there (a full disk)."""
    given = pickle.dumps((directory, list(samples)))
    alike = ["-I"] if sys.flags.isolated else ["-P"]
    done = subprocess.run([sys.executable, *alike, "-m", __name__], input=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise TrialError(f"the samples cannot be written: {said[-1] if said else f'their process ended with {done.returncode}'}")


if __name__ == "__main__":
    write_samples(*pickle.load(sys.stdin.buffer))
