"""A real first use: the environment made from the registry, as root and as an ordinary user, from any directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pgherd import __version__

ROOT = Path(__file__).parent.parent.parent
NEEDED = ("pgherd", "environment", "extension", "src", "pyproject.toml", "LICENSE", "README.md")
ORDINARY_USER = "nobody"
OF_SINGLE_COMMANDS = """
import pgherd.ui.server
import cryptography, distributed, lz4.block, mimesis, zstandard
"""
"""Raises if a library is missing that only the web page, clusters or compression require."""


@pytest.fixture
def directory():
    """A directory that every user can reach, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="pgherd-first-use-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def checkout(directory):
    """What a fresh clone would hold."""
    copy = directory / "checkout"
    copy.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, copy)
    return copy


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/", timeout=280, **options)


def as_ordinary_user(home: Path) -> list[str]:
    """A command's beginning that runs the rest as an ordinary user with this home."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    home.mkdir()
    shutil.chown(home, ORDINARY_USER)
    to_user = ["setpriv", f"--reuid={ORDINARY_USER}", "--regid=65534", "--clear-groups"]
    return [*to_user, "env", "-u", "XDG_CACHE_HOME", f"HOME={home}"]


def python_for_all() -> str:
    """A Python outside of anybody's home directory; skips where there is none."""
    for name in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable):
        if Path(name).exists() and not run(name, "-c", "import ensurepip, sys; assert sys.version_info >= (3, 11)").returncode:
            return name
    pytest.skip("no Python for all users")


def test_first_use(checkout, directory):
    # Left behind by a set-up that was killed: must not be used
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/made-by-pgherd").touch()
    (directory / "link").symlink_to(checkout / "pgherd")

    environment = os.environ | {"PGHERD_PYTHON": python_for_all(), "PYTHONDONTWRITEBYTECODE": "1"}
    first = run(directory / "link", "--version", env=environment)
    assert (first.returncode, first.stdout) == (0, f"pgherd {__version__}\n"), first.stderr
    assert len(first.stderr.splitlines()) == 1
    assert list((checkout / "src/pgherd/cli/__pycache__").glob("main.*.pyc"))

    # Its packages are whole, those of every command are there, and edits are seen
    python = checkout / ".venv/bin/python"
    assert run(python, "-I", "-m", "pip", "check").returncode == 0
    assert run(python, "-I", "-c", OF_SINGLE_COMMANDS).stderr == ""
    (checkout / "src/pgherd/__init__.py").write_text('"""Edited."""\n__version__ = "edited"\n')
    assert run(checkout / "pgherd", "--version").stdout == "pgherd edited\n"

    # Neither the directory nor PYTHONPATH slips a module in
    (directory / "click.py").write_text("raise SystemExit('slipped in')")
    again = subprocess.run(
        [checkout / "pgherd", "--version"], cwd=directory, env=environment | {"PYTHONPATH": str(directory)}, capture_output=True, text=True
    )
    assert (again.stdout, again.stderr) == ("pgherd edited\n", "")

    # An ordinary user uses the environment that root made
    home = directory / "home"
    second = run(*as_ordinary_user(home), checkout / "pgherd", "--version")
    assert (second.returncode, second.stdout, second.stderr) == (0, "pgherd edited\n", "")
    assert not list(home.iterdir())


@pytest.mark.long
def test_first_use_by_an_ordinary_user_in_a_read_only_checkout(checkout, directory):
    command = [*as_ordinary_user(directory / "home"), checkout / "pgherd", "--version"]
    environment = os.environ | {"PGHERD_PYTHON": python_for_all()}
    first = run(*command, env=environment)
    assert (first.returncode, first.stdout) == (0, f"pgherd {__version__}\n"), first.stderr
    assert not (checkout / ".venv").exists()
    (environment_directory,) = (directory / "home/.cache/pgherd").glob("venv-*")
    assert run(environment_directory / "bin/python", "-I", "-c", OF_SINGLE_COMMANDS).stderr == ""
    assert run(*command, env=environment).stderr == ""


@pytest.mark.long
def test_installed_as_a_package(checkout, directory):
    run(sys.executable, "-m", "venv", directory / "venv", check=True)
    python = directory / "venv/bin/python"
    lock = checkout / "environment/requirements.lock"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", lock, check=True)
    installed = run(python, "-m", "pip", "install", "--quiet", checkout)
    assert installed.returncode == 0, installed.stderr
    shutil.rmtree(checkout)
    assert run(directory / "venv/bin/pgherd", "--version").stdout == f"pgherd {__version__}\n"
    assert run(python, "-m", "pgherd", "--help").returncode == 0
    # Its data files are whole too: a database is filled, measured and reported, from a directory that is not its own
    places = {"HOME": directory, **{f"XDG_{kind}_HOME": directory / kind for kind in ("CACHE", "STATE")}, "PGHERD_RUNS": directory / "runs"}
    short = ("--databases", "1", "--scale", "1", "--repeats", "1", "--duration", "1s", "--time-budget", "1s", "--workload", "orders")
    measured = run(
        directory / "venv/bin/pgherd", "density", *short, env=os.environ | {name: str(location) for name, location in places.items()}
    )
    assert measured.returncode in (0, 1) and "tps" in measured.stdout, measured.stderr
    assert len(list(directory.glob("runs/*/report.html"))) == 1
