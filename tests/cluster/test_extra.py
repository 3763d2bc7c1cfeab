"""The extra's libraries, or one message."""

from __future__ import annotations

import pytest

from pgherd.cluster import extra
from pgherd.model.errors import CapabilityError


def test_what_is_missing_is_said_with_the_command(monkeypatch):
    monkeypatch.setattr(extra, "LIBRARIES", ("json", "no_such_library"))
    with pytest.raises(CapabilityError, match=r"a cluster needs no_such_library.*pip install 'pgherd\[cluster\]'"):
        extra.insist()
    monkeypatch.setattr(extra, "LIBRARIES", ("json",))
    extra.insist()
