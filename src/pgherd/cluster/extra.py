"""What the extra [cluster] brings, and how it is said that it is missing."""

from __future__ import annotations

import importlib.util

from pgherd.model.errors import CapabilityError

LIBRARIES = ("distributed", "cryptography")


def insist(purpose: str = "a cluster") -> None:
    """Insist on the extra's libraries; raises CapabilityError that says how to install them."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise CapabilityError(f"{purpose} needs {' and '.join(missing)}, which is not installed here: pip install 'pgherd[cluster]'")
