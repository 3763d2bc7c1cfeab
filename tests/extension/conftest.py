"""The parts of pg_balloon that need no server, compiled as a library of their own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import controller_interface
from controller_interface import Controller

SOURCES = Path(__file__).parents[2] / "extension/pg_balloon/src"
RECORDER = """
#include <unistd.h>
int recorded[1000];
int recordings = 0;
ssize_t __real_pread(int fd, void *into, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t at)
{
    recorded[recordings++ % 1000] = fd;
    return __real_pread(fd, into, size, at);
}
"""
"""Keeps which files are read, and in which order."""


@pytest.fixture(scope="session")
def pure(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """kernel_text.c, controller.c, memory_signals.c and rates.c, compiled without any header of PostgreSQL; warnings are errors."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("pure")
    library, recorder = path / "pure.so", path / "recorder.c"
    recorder.write_text(RECORDER)
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    flags += ["-U_FORTIFY_SOURCE", "-Wl,--wrap=pread"]
    files = [str(SOURCES / name) for name in ("kernel_text.c", "controller.c", "memory_signals.c", "rates.c")]
    finished = subprocess.run([compiler, *flags, *files, str(recorder), "-lm"], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def controller(pure: ctypes.CDLL) -> Controller:
    """The controller's step as a function."""
    return controller_interface.step_of(pure)
