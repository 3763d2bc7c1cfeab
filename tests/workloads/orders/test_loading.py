from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from pgherd.model.errors import TrialError
from pgherd.workloads.orders import loading
from pgherd.workloads.orders.loading import GROUPS, fill, shipped, statements


class Connection:
    """Connection that records statements. ``trouble`` is a table whose creation fails."""

    executed: list[str]
    lock = threading.Lock()

    def __init__(self, executed: list[str], trouble: str | None) -> None:
        self.executed, self.trouble, self.autocommit = executed, trouble, False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: Any) -> None:
        text = statement.decode() if isinstance(statement, bytes) else statement if isinstance(statement, str) else statement.as_string()
        with self.lock:
            self.executed.append(text)
        if self.trouble and f"CREATE TABLE {self.trouble}" in text:
            import psycopg

            raise psycopg.errors.DiskFull("no space left")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fill without a server; return the statements and progress lines."""

    def run(warehouses: int, trouble: str | None = None) -> tuple[list[str], list[str]]:
        executed: list[str] = []
        progress: list[str] = []
        monkeypatch.setattr(loading, "_copy", lambda connection, table, blocks: connection.executed.append(f"COPY {table}"))
        fill(lambda: Connection(executed, trouble), warehouses, progress.append)  # type: ignore[arg-type,return-value]
        return executed, progress

    return run


def test_statements_by_table() -> None:
    schema, keys = statements(shipped("schema.sql")), statements(shipped("keys.sql"))
    assert len(schema) == 9
    assert set(schema) == {table for group in GROUPS for table in group}
    assert all(created[0].lstrip("-").find("CREATE TABLE") >= 0 for created in schema.values())
    assert set(keys) == set(schema) - {"history"}  # which has no key
    assert sum(map(len, keys.values())) == 10


def test_every_table_is_made_filled_keyed_and_vacuumed(fake: Any) -> None:
    executed, progress = fake(3)
    for table in statements(shipped("schema.sql")):
        created = next(i for i, line in enumerate(executed) if f"CREATE TABLE {table} " in line)
        copied = [i for i, line in enumerate(executed) if line == f"COPY {table}"]
        assert len(copied) == (1 if table == "item" else 3)
        assert created < copied[0]
        assert f'VACUUM (ANALYZE) "{table}"' in executed
    assert "CREATE FUNCTION enter_order" in executed[-1]
    assert progress[:-1] == ["loaded 1 of 3 warehouses", "loaded 2 of 3 warehouses", "loaded 3 of 3 warehouses"]


def test_what_rows_do_not_bring_is_a_default_only_while_they_are_loaded(fake: Any) -> None:
    executed, _ = fake(2)
    line = [i for i, text in enumerate(executed) if text == "COPY order_line"]
    created = next(i for i, text in enumerate(executed) if text.startswith('ALTER TABLE "order_line" ALTER "ol_w_id" SET DEFAULT 1,'))
    again = next(i for i, text in enumerate(executed) if text.startswith('ALTER TABLE "order_line" ALTER "ol_w_id" SET DEFAULT 2,'))
    dropped = next(i for i, text in enumerate(executed) if text.startswith('ALTER TABLE "order_line" ALTER "ol_w_id" DROP DEFAULT'))
    assert created < line[0] < again < line[1] < dropped
    assert '"ol_quantity" SET DEFAULT 5' in executed[created]
    assert any('"c_since" SET DEFAULT ' in text and '"c_delivery_cnt" SET DEFAULT 0' in text for text in executed)
    assert "ol_quantity" not in executed[again] and '"ol_supply_w_id" SET DEFAULT 2' in executed[again]
    set_columns = {name for text in executed for name in re.findall(r'ALTER "(\w+)" SET DEFAULT', text)}
    assert set_columns == {name for text in executed for name in re.findall(r'ALTER "(\w+)" DROP DEFAULT', text)}


def test_what_is_delivered_was_entered_at_the_same_instant(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.time, "time", lambda: 1_800_000_000.25)
    executed, _ = fake(1)
    set_columns = dict(result for text in executed for result in re.findall(r'"(c_since|h_date|o_entry_d)" SET DEFAULT (\S+ \S+)', text))
    assert {name: value.rstrip(",") for name, value in set_columns.items()} == dict.fromkeys(
        ("c_since", "h_date", "o_entry_d"), "'2027-01-15 08:00:00.250000+00:00'::timestamptz"
    )
    population = loading.Population(loading.SEED, int((1_800_000_000.25 - loading.EPOCH) * 1_000_000))
    lines = next(iter(population.order_lines(1))).block
    assert {loading.EPOCH + int(instant) / 1e6 for instant in lines["ol_delivery_d"]} == {1_800_000_000.25}


def test_every_analyze_takes_a_tenth_of_the_usual_sample_of_large_tables() -> None:
    """ANALYZE's sample is as large as the largest target of a column, so one default would override the others."""
    for table, created in statements(shipped("schema.sql")).items():
        if table in ("warehouse", "district"):
            continue
        columns = re.findall(r"^    (\w+) (?:integer|numeric|varchar|timestamptz)", created[0], re.MULTILINE)
        targets = dict(re.findall(r"ALTER (\w+) SET STATISTICS (\d+)", created[1]))
        assert list(dict.fromkeys(columns)) == columns and set(targets) == set(columns)
        assert set(targets.values()) <= {"0", "10"}


def test_progress_is_told_twenty_times_at_most(fake: Any) -> None:
    progress = fake(100)[1]
    assert len(progress) == 21
    assert progress[-2] == "loaded 100 of 100 warehouses"


def test_a_failure_is_postgresqls_words(fake: Any) -> None:
    with pytest.raises(TrialError, match="workload orders cannot be filled: no space left"):
        fake(50, trouble="stock")
