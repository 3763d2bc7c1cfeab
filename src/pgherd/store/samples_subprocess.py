"""Writer of samples in a separate process, for a long-lived process that must stay small, such as an agent.

DuckDB takes about 60 MB, most of it code, and a process that has loaded it keeps that memory.
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
    """Call ``write_samples`` in a separate process.

    Raises:
        OSError: as in ``write_samples``. A full disk ends a run.
        TrialError: any other failure of that process.
    """
    payload = pickle.dumps((directory, list(samples)))
    isolation = ["-I"] if sys.flags.isolated else ["-P"]
    process = subprocess.run([sys.executable, *isolation, "-m", __name__], input=payload, capture_output=True)
    if process.returncode:
        if process.stdout:
            number, filename = json.loads(process.stdout)
            raise OSError(number, os.strerror(number), filename)
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise TrialError(f"the samples cannot be written: {lines[-1] if lines else f'their process exited with {process.returncode}'}")


def _error_number(error: Exception) -> int | None:
    # DuckDB reports a full disk with the operating system's message only.
    if isinstance(error, OSError):
        return error.errno
    return errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else None


def _main() -> None:
    directory, samples = pickle.load(sys.stdin.buffer)  # noqa: S301 (from the parent process)
    try:
        write_samples(directory, samples)
    except Exception as error:
        number = _error_number(error)
        if number is None:
            raise
        print(json.dumps([number, str(getattr(error, "filename", None) or directory)]), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    _main()
