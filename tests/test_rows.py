"""Which tests may run at once (``row`` in conftest.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PLACES = {
    "tests/it/test_vm.py::test_x": ("host-wide", "host-wide"),
    "tests/it/pg_balloon/test_mechanism.py::test_x": ("host-wide", "host-wide"),
    "tests/it/test_bad_luck.py::test_a_container_with_too_little_memory": ("host-wide", "host-wide"),
    "tests/it/test_bad_luck.py::test_two_runs_that_fit_together": ("servers", "host-wide"),
    "tests/it/test_cluster_engine.py::test_x": ("cluster", "host-wide"),
    "tests/studies/hugepages/test_prepare.py::test_x": ("host-wide", "host-wide"),
    "benchmarks/test_quick.py::test_x": ("host-wide", "host-wide"),
    "tests/host/test_cgroups.py::test_x": ("tests/host/test_cgroups.py::test_x",) * 2,
}
"""Test → its row, and its row where control groups are of version 2."""


@pytest.mark.parametrize("nodeid", PLACES)
def test_rows(nodeid):
    spec = importlib.util.spec_from_file_location("rows", Path(__file__).with_name("conftest.py"))
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    assert (result.row(nodeid, False), result.row(nodeid, True)) == PLACES[nodeid]


def test_what_is_named_alone_is_there():
    directory = Path(__file__).parent
    assert "def test_a_container_with_too_little_memory" in (directory / "it/test_bad_luck.py").read_text()
    assert (directory / "studies/hugepages/test_prepare.py").exists()
