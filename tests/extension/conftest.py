"""The parts of pg_balloon that need no server, compiled as a library of their own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "extension/pg_balloon/src"


@pytest.fixture(scope="session")
def pure(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """groups.c, law.c, misses.c and signals.c, without a single header of PostgreSQL; warnings are errors."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("pure") / "pure.so"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    files = [str(SOURCES / name) for name in ("groups.c", "law.c", "misses.c", "signals.c")]
    done = subprocess.run([compiler, *flags, *files, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))
