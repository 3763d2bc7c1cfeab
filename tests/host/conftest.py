from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pgherd.host import shared_settings


@pytest.fixture(scope="module", autouse=True)
def _own_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a separate ledger, so that cleaning does not release the holds of concurrent tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_settings, "LEDGER", tmp_path_factory.mktemp("ledger") / "holds.json")
        yield


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module fake_node.py: a node below a directory, with a simulated cgroup v2 tree."""
    return _loaded("fake_node")


@pytest.fixture(scope="session")
def fake_pools() -> ModuleType:
    """The module fake_pools.py: a node with simulated pools of huge pages."""
    return _loaded("fake_pools")


@pytest.fixture(scope="session")
def fake_swap() -> ModuleType:
    """The module fake_swap.py: a node with simulated zram devices and swap areas."""
    return _loaded("fake_swap")


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
