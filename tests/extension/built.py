"""pg_balloon built for an installation of PostgreSQL, and installed in a private copy of it.

The installation itself is not touched: its programs, libraries and shared files are copied below a directory (as
DESTDIR), where they find each other as before, and the extension is installed there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.postgres.installations import Installation

SOURCE = Path(__file__).parents[2] / "extension/pg_balloon"
UNKNOWN_TO_OLD_COMPILERS = "-Wmissing-variable-declarations"
"""In the CFLAGS of the embedded binaries, which were built with gcc 14."""


@dataclass(frozen=True)
class Built:
    """A private copy of an installation with the extension in it. ``tree`` is where it was built."""

    installation: Installation
    original: Path
    tree: Path
    root: Path

    def config(self, what: str) -> str:
        """What the original's pg_config says."""
        return _output([str(self.original / "pg_config"), f"--{what}"])

    def inside(self, path: str) -> Path:
        """A path of the original in the copy."""
        return self.root / path.lstrip("/")

    @property
    def pgxs(self) -> Path:
        """The original's PGXS tree."""
        return Path(self.config("pgxs")).parents[2]

    @property
    def library_path(self) -> dict[str, str]:
        """The environment in which programs outside the copy's bin directory find libpq."""
        texts = [str(path) for path in (self.root / str(self.original).lstrip("/")).parents[2].glob("*.libs")]
        return {"LD_LIBRARY_PATH": ":".join(texts)} if texts else {}


def build(installation: Installation, root: Path, options: str = "") -> Built:
    """Build with further options of the compiler, and install into a copy below ``root``.

    Raises:
        CapabilityError: there is nothing to build with.
    """
    original = Path(installation.bin)
    config = original / "pg_config"
    if not config.exists() or subprocess.run([config, "--version"], capture_output=True).returncode:
        raise CapabilityError(
            f"PostgreSQL {installation.version} in {original} has no pg_config (on Debian: postgresql-server-dev-{installation.major})"
        )
    include, pgxs = (_output([str(config), f"--{description}"]) for description in ("includedir-server", "pgxs"))
    if not Path(include, "storage/buf_internals.h").exists() or not Path(pgxs).exists():
        raise CapabilityError(f"the server headers of {original} are missing (on Debian: postgresql-server-dev-{installation.major})")
    for tool in ("make", "gcc"):
        if shutil.which(tool) is None:
            raise CapabilityError(f"{tool} is missing")

    tree = root / "build"
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("*.o", "*.so", "*.bc"))
    flags = " ".join(word for word in _output([str(config), "--cflags"]).split() if word != UNKNOWN_TO_OLD_COMPILERS)
    make = [
        "make",
        f"-j{os.cpu_count() or 1}",
        "-C",
        str(tree),
        f"PG_CONFIG={config}",
        f"CFLAGS={flags} -fPIC -Werror=implicit -Werror=incompatible-pointer-types {options}",
        f"DESTDIR={root}",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    for directory in (_output([str(config), f"--{kind}"]) for kind in ("bindir", "pkglibdir", "sharedir")):
        if not (root / directory.lstrip("/")).exists():
            shutil.copytree(directory, root / directory.lstrip("/"), symlinks=True, ignore=shutil.ignore_patterns("bitcode"))
    for adjacent in original.parents[2].glob("*.libs"):  # libraries that programs of a wheel find by a relative path
        shutil.copytree(adjacent, root / str(adjacent).lstrip("/"))
    finished = subprocess.run([*make, "all", "install"], capture_output=True, text=True, env=environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    copied = Installation(
        str(root / str(original).lstrip("/")),
        installation.version,
        installation.major,
        installation.kind,
        installation.build,
        installation.extras,
    )
    return Built(copied, original, tree, root)


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
