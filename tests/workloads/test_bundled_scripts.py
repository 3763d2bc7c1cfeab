from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.workloads import bundled_scripts
from pgherd.workloads.script_parser import command_lines
from pgherd.workloads.user_script import stage


def test_orders_begins_fresh_and_reports_say_what_it_is_not() -> None:
    mix = bundled_scripts.mix("orders")
    assert mix is not None
    assert (mix.state, mix.scale, mix.variables, mix.read_only) == ("fresh", 1, {"base": "0"}, False)
    assert "derived" in mix.notice and "not comparable with published TPC results" in mix.notice
    assert bundled_scripts.NOTICES["orders"] == mix.notice


def test_waiting_has_its_own_scripts_and_variable() -> None:
    mix = bundled_scripts.mix("orders", think=0.01)
    assert mix is not None
    assert mix.variables == {"base": "0", "think": "0.01"}
    assert all(script.source.endswith("+think") for script in mix.scripts)
    assert bundled_scripts.mix("orders", think=0) == bundled_scripts.mix("orders")


def test_random_block_that_updates_nothing_only_reads() -> None:
    mix = bundled_scripts.mix("random-block", updates=0, zipf=1.5)
    assert mix is not None
    assert (mix.read_only, mix.state, mix.variables) == (True, "warm", {"zipf": "1.5"})
    assert [script.name for script in mix.scripts] == ["read"]


def test_other_workloads_are_not_ours() -> None:
    assert bundled_scripts.mix("tpcb-like") is None
    assert bundled_scripts.text("builtin:tpcb-like") is None
    assert bundled_scripts.text("orders:nothing") is None
    assert bundled_scripts.load_sql("pgbench") is None


@pytest.mark.parametrize(
    ("workload", "options", "message"),
    [
        ("select-only", {"think": 1.0}, "--think-time is for --workload orders only; the workload is select-only"),
        ("orders", {"zipf": 2.0}, "--zipf is for --workload random-block only; the workload is orders"),
        ("orders", {"updates": 5}, "--update-percent is for --workload random-block only"),
        ("orders", {"think": -1.0}, "--think-time -1"),
        ("random-block", {"zipf": 1.0}, r"--zipf 1: pgbench takes 1\.001 to 1000"),
        ("random-block", {"updates": 101}, "--update-percent 101"),
    ],
)
def test_options_that_do_not_belong_to_the_workload(workload: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bundled_scripts.mix(workload, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("workload", ["orders", "random-block"])
def test_every_script_of_a_mix_has_a_text_and_is_staged(workload: str, tmp_path: Path) -> None:
    mix = bundled_scripts.mix(workload)
    assert mix is not None
    staged = stage(LocalNode(), [*mix.scripts, Script(source="builtin:select-only")], str(tmp_path))
    assert [script.name for script in staged[:-1]] == [script.name for script in mix.scripts]
    assert [script.weight for script in staged[:-1]] == [script.weight for script in mix.scripts]
    for script, original in zip(staged[:-1], mix.scripts, strict=True):
        file = Path(script.source)
        assert file.parent == tmp_path and file.stat().st_mode & 0o777 == 0o644
        assert file.read_text() == bundled_scripts.text(original.source)
        assert command_lines(file.read_text())


def test_the_sql_for_psql_makes_what_the_loader_makes() -> None:
    sql = bundled_scripts.load_sql("orders")
    assert sql is not None
    assert sql.count("CREATE TABLE") == 9
    assert sql.index("CREATE TABLE") < sql.index("CREATE FUNCTION") < sql.index("INSERT INTO item") < sql.index("ADD PRIMARY KEY")
    assert "CREATE TABLE block" in (bundled_scripts.load_sql("random-block") or "")
