from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module fake_node.py: a node below a directory, with a simulated cgroup v2 tree."""
    path = Path(__file__).parents[1] / "host/fake_node.py"
    spec = importlib.util.spec_from_file_location("fake_node", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_node"] = module
    spec.loader.exec_module(module)
    return module
