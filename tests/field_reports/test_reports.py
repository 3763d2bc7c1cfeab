"""Each kind of fault has its rows, and a test file that uses them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import reports
from reports import KINDS, Kind

TESTS = Path(__file__).parents[1]
FIRST_COLLECTION = set(range(1, 19))


def test_no_kind_is_without_rows() -> None:
    assert {kind.number for kind in KINDS} == FIRST_COLLECTION


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.number}-{kind.test}")
def test_the_rows_of_a_kind_are_used_in_its_test_file(kind: Kind) -> None:
    (name,) = [name for name, value in vars(reports).items() if value is kind.rows]
    tree = ast.parse((TESTS / kind.test).read_text())
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "reports" for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert name in imported & used
    names = [row[0] for row in kind.rows]
    assert names and len(set(names)) == len(names)
