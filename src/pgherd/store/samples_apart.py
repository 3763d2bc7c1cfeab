"""Samples written by a process of its own, where this one lives on and is to stay small: an agent, from one trial to the next.

The engine that writes them takes some 60 MB, most of it its own code, and a process that has once had it keeps it.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pgherd.model.errors import TrialError
from pgherd.store.samples import Sample, write_samples


def write_samples_apart(directory: Path, samples: Iterable[Sample]) -> None:
    """As ``write_samples``. Raises OSError as it does (a full disk ends a run), TrialError for what else fails there."""
    given = pickle.dumps((directory, list(samples)))
    alike = ["-I"] if sys.flags.isolated else ["-P"]
    done = subprocess.run([sys.executable, *alike, "-m", __name__], input=given, capture_output=True)
    if done.returncode:
        if done.stdout:
            number, filename = json.loads(done.stdout)
            raise OSError(number, os.strerror(number), filename)
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise TrialError(f"the samples cannot be written: {said[-1] if said else f'their process ended with {done.returncode}'}")


def _number(error: Exception) -> int | None:
    """Its errno; the engine only passes on the operating system's words of a full disk."""
    if isinstance(error, OSError):
        return error.errno
    return errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else None


def _main() -> None:
    directory, samples = pickle.load(sys.stdin.buffer)
    try:
        write_samples(directory, samples)
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        print(json.dumps([number, str(getattr(error, "filename", None) or directory)]), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    _main()
