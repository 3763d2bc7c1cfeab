"""What the studies that need tools or libraries of their own could do here: network and compression."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pgherd.node.protocol import Node

LIBRARIES = ("lz4", "zstandard", "cryptography", "mimesis")
"""Of the extra 'compression'."""

Told = tuple[str, Literal["yes", "partly", "no"], str, str]
"""Study, whether it is able, what it could do, and what would make more possible."""


def tool_abilities(node: Node, iperf3: str | None) -> list[Told]:
    """One for each of them; ``iperf3`` is its version, None where it is missing."""
    return [network_ability(node, iperf3), compression_ability()]


def network_ability(node: Node, iperf3: str | None) -> Told:
    """Links to other hosts take iperf3; namespaces take root, too."""
    from pgherd.host import namespaces
    from pgherd.model.errors import CapabilityError

    if iperf3 is None:
        return "network", "no", "a link by parallel streams", "install the package iperf3"
    try:
        namespaces.insist(node)
    except CapabilityError as error:
        return "network", "partly", "links to hosts on which an iperf3 server runs", str(error)
    return "network", "yes", "links to hosts on which an iperf3 server runs, and between namespaces", ""


def compression_ability() -> Told:
    """Which of its libraries are there."""
    what = "ratios by codec, block size and kind of data"
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if not missing:
        return "compression", "yes", what, ""
    more = f"pip install 'pgherd[compression]' (missing: {', '.join(missing)})"
    return "compression", "no" if {"lz4", "zstandard"} <= set(missing) else "partly", what, more
