from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "report"


def _fixture(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"report_{name}", FIXTURES / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


SYNTHETIC, COMPARISON = _fixture("synthetic"), _fixture("comparison")


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    return SYNTHETIC


@pytest.fixture(scope="session")
def comparison() -> ModuleType:
    return COMPARISON


@pytest.fixture(scope="session")
def run8():
    return SYNTHETIC.density_run(8, vcpus=0.25, alone=17_000.0)


@pytest.fixture(scope="session")
def run40():
    return SYNTHETIC.density_run(40)


@pytest.fixture(scope="session")
def hostile8():
    return SYNTHETIC.hostile(*SYNTHETIC.density_run(8, repeats=2))


@pytest.fixture(scope="session")
def drawn8(run8):
    """(figures by name, reasons of those left out) of the run with 8 databases."""
    from pgherd.report import figures

    drawn, left_out = figures.draw(figures.Inputs(run8[0], run8[0].analysis, run8[1]))
    return {one.name: one for one in drawn}, left_out
