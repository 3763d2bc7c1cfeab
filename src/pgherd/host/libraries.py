"""Python libraries that some commands require. The environment of a checkout has them all; another one may lack some."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from pgherd.model.errors import CapabilityError


def require_libraries(purpose: str, modules: Iterable[str]) -> None:
    """Require top-level modules, each named as its package. Raises CapabilityError with the command that installs them."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise missing_libraries(purpose, missing)


def missing_libraries(purpose: str, packages: Iterable[str]) -> CapabilityError:
    """Return the error for packages that this Python lacks."""
    names = list(packages)
    noun = "Python package" if len(names) == 1 else "Python packages"
    return CapabilityError(f"{purpose} requires the {noun} {' and '.join(names)}; install with: {install_command(names)}")


def install_command(packages: Iterable[str]) -> str:
    """Return the command that installs packages for this Python. An environment made by uv has no pip."""
    installer = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{installer} {' '.join(packages)}"
