"""The actor on a host, as Dask runs it."""

from __future__ import annotations

import os

import pytest

from pgherd import __version__
from pgherd.cluster import engine

pytest.importorskip("distributed")


def test_a_host_tells_what_it_is(loopback):
    with engine.connect(loopback, hold=False) as made:
        seen, found = made.ask("look"), made.ask("versions")
    assert seen["left"]["pid"] == os.getpid() and seen["left"]["memory"] > 1e6 and seen["left"]["driver"] is None
    assert found["right"]["pgherd"] == __version__
