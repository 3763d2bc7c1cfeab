"""A server that loads a database, and the measured one: settings without which an SQL file fails are those of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.postgres.templates import key_of
from pgherd.workloads.registry import loaders
from reports import PRELOADING, Preloading

BUILD = Installation("/b", "18.1", 18, "system", "18.1 (b)")


def key(settings: dict[str, str], init: Path) -> str:
    """Name of the template that a server with these settings starts from."""
    return key_of(BUILD, loaders(LocalNode(), [Database(workload="script", init=str(init))], settings), True)


@pytest.mark.parametrize("row", PRELOADING, ids=lambda row: row.report)
def test_the_template_is_loaded_under_the_settings_that_identify_it(row: Preloading, tmp_path: Path) -> None:
    init = tmp_path / "init.sql"
    init.write_text("CREATE EXTENSION pg_stat_statements;\n")
    (loader,) = loaders(LocalNode(), [Database(workload="script", init=str(init))], row.settings)
    assert loader.settings == row.right
    keys = {name: key(settings, init) for name, settings in {"none": {}, "these": row.settings, "needed": row.right}.items()}
    assert keys["these"] == keys["needed"] and (keys["these"] == keys["none"]) == (not row.right)


def test_templates_differ_with_each_library_and_each_of_its_settings(tmp_path: Path) -> None:
    init = tmp_path / "init.sql"
    init.write_text("CREATE EXTENSION pg_stat_statements;\n")
    first, *others = (row.right for row in PRELOADING)
    changed = [first | {name: f"{value}0"} for name, value in first.items()]
    assert len({key(settings, init) for settings in (first, *changed, *others)}) == 1 + len(changed) + len(others)
