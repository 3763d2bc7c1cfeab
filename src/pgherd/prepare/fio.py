"""fio of this host, for studies whose loads need it."""

from __future__ import annotations

import re

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import CANNOT_RUN, Command, Node


def fio_version(node: Node) -> str:
    """Return the version of fio.

    Raises:
        CapabilityError: fio is not installed, or too old.
    """
    missing = CapabilityError(
        "fio is not installed, and this study needs it; install the package fio (apt-get install fio, dnf install fio)"
    )
    try:
        version = node.run(Command(["fio", "--version"]))
    except OSError:
        raise missing from None
    if version.code in CANNOT_RUN:
        raise missing
    match = re.match(r"fio-((\d+)\.(\d+)\S*)", version.out.strip())
    if match is None or int(match[2]) < 3:
        raise CapabilityError(
            f"the version of fio is {version.out.strip() or 'unknown'}, but 3.0 or later is required; install a newer package fio"
        )
    return match[1]
