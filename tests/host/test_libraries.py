from __future__ import annotations

import sys

import pytest

from pgherd.host import libraries
from pgherd.model.errors import CapabilityError


def test_the_message_contains_the_command(monkeypatch):
    libraries.require_libraries("a test", ["json", "re"])
    monkeypatch.setattr(libraries, "find_spec", lambda name: None if name.startswith("no_such") else object())
    with pytest.raises(CapabilityError) as caught:
        libraries.require_libraries("a test", ["json", "no_such_library", "no_such_other"])
    expected = "a test requires the Python packages no_such_library and no_such_other; install with: "
    assert str(caught.value) == f"{expected}{sys.executable} -m pip install no_such_library no_such_other"


def test_an_environment_without_pip_was_made_by_uv(monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert libraries.install_command(["a", "b"]) == f"uv pip install --python {sys.executable} a b"
