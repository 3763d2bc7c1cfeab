from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from pgherd.model.errors import UsageError
from pgherd.prepare.fleet_files import read_classes, read_demand, read_rules

WIDE = "database,time,cpu_cores,memory_mb\na,0,1,10\na,1,2,\nb,0,3,30\nb,1,4,40\n"
LONG = "database,time,resource,value\na,0,cpu_cores,1\na,0,memory_mb,10\na,1,cpu_cores,2\na,1,memory_mb,\n" + "".join(
    f"b,{t},{name},{value}\n" for t, name, value in ((0, "cpu_cores", 3), (1, "cpu_cores", 4), (0, "memory_mb", 30), (1, "memory_mb", 40))
)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "file.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("text", [WIDE, LONG])
def test_wide_and_long_are_the_same(write, text):
    found = read_demand(write(text), 95)
    assert found.names == ("a", "b") and found.resources == ("cpu_cores", "memory_mb") and found.slots == ("00:00", "12:00")
    assert found.high[:, 0].tolist() == [[1, 2], [3, 4]] and found.high[0, 1].tolist() == [10, 10]
    assert [(one.database, one.resource) for one in found.unknown] == [("a", "memory_mb")] and found.rows[0] == 2


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("database;memory_mb\na;900,5\nb;1.050,25\n", [900.5, 1050.25]),
        ("database\tmemory_mb\na\t900.5\nb\t1\n", [900.5, 1]),
        ("database;memory_mb\na;nan\nb;1,5\n", [1.5, 1.5]),
        ("database,memory_mb\na,900\nb,1.050\n", [900, 1.05]),
    ],
)
def test_decimal_commas_are_read_where_commas_do_not_separate(write, text, memory):
    assert read_demand(write(text), 95).high[:, 0, 0].tolist() == pytest.approx(memory)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("database;memory_mb\na;900\nb;1.050\nc;2.100\n", "line 3: '1.050' may be a decimal or a grouped number"),
        ("database;memory_mb\na;0,5\nb;0.5\n", "numbers with a decimal point and numbers with a decimal comma"),
        ("database;memory_mb\na;1,05,0\nb;2,5\n", "row 2: '1,05,0' under memory_mb"),
        ("database,cpu_cores\na,0.5\ndatabase,cpu_cores,memory_mb\nc,1,100\n", "not all rows have the cells of its first line"),
        ("Demand of May\ndatabase,cpu_cores\na,0.5\n", "has no column 'database' .it has Demand of May"),
    ],
)
def test_neither_rows_nor_numbers_are_guessed(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_demand(write(text), 95)


def test_parquet(tmp_path):
    path = tmp_path / "a b [1].parquet"
    duckdb.connect().execute(
        "COPY (SELECT 'a' AS database, TIMESTAMPTZ '2026-01-01 00:00+00' + INTERVAL (i) HOUR AS time, i::DOUBLE AS cpu_cores "
        f"FROM range(24) t(i)) TO '{path}' (FORMAT parquet)"
    )
    assert read_demand(path, 95).high[0, 0].tolist() == list(range(24))


def rows(times, value="1"):
    return "database,time,cpu_cores\n" + "".join(f"a,{time},{value}\n" for time in times)


def test_days_with_offsets_are_folded_in_utc(write):
    # The day on which summer time ends in Berlin has 25 hours. With offsets each hour is there once.
    local = [f"2026-10-25T{h:02d}:00+02:00" for h in range(3)] + [f"2026-10-25T{h:02d}:00+01:00" for h in range(2, 24)]
    found = read_demand(write(rows(local)), 95)
    assert found.high.shape == (1, 1, 24) and found.days == 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("database,time,cpu_cores\na,0,1\na,1,-2\n", "row 3: '-2' under cpu_cores of database a is not a number from 0 to 1e.12"),
        ("database,time,cpu_cores\na,0,1e13\n", "row 2: '1e13'"),
        ("database,time,cpu_cores\na,0,x1\n", "row 2: 'x1' under cpu_cores"),
        ("database,time,cpu_cores\na,0,inf\n", "row 2: 'inf'"),
        ("database,time,cpu_cores\na,0,1\na,1,1\nb,0,1\n", "row 4: database b at 1 is missing"),
        (rows(["2026-10-25T02:00"] * 2), "row 3: database a at 2026-10-25T02:00 is there already in row 2.*offset from UTC"),
        (rows(["00:00", "08:00", "12:00"]), "row 4: 12:00 is 14,400 s after 08:00, and the first slot has 28,800 s"),
        (rows(["00:00", "01:00"]), "give at least a whole day"),
        (rows(["00:00", "2026-01-01T12:00Z"]), "row 3: the time '2026-01-01T12:00Z' has another form than '00:00'"),
        (rows(["2026-01-01T00:00Z", "2026-01-01T12:00"]), "has another form"),
        (rows(["noon"]), "row 2: 'noon' is no time"),
        (rows(["0", "2"]), "slot 1 is missing"),
        (rows(map(str, range(7))), "7 slots, which do not divide a day"),
        (rows([f"{m // 60:02d}:{m % 60:02d}" for m in range(1440)]), "at most 288 slots"),
        ("name,cpu_cores\na,1\n", "no column 'database'"),
        ("database,cpu_cores\na,1\nb,2,000\n", "not all rows have the cells of its first line .database,cpu_cores"),
        ("database,cpus\na,1\n", "column 'cpus' is no resource"),
        ("database,time\na,1\n", "no column is a resource"),
        ("database,time,resource,value\na,0,cpu,1\n", "row 2: 'cpu' is no resource"),
        ("database,cpu_cores\n", "a header and no rows"),
        ("database,cpu_cores\n,1\n", "row 2: the name of the database is empty"),
    ],
)
def test_bad_demand_is_one_sentence(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_demand(write(text), 95)


def test_missing_file_and_directory(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(UsageError, match="is no regular file"):
            read_demand(path, 95)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match="as CSV or Parquet"):
        read_demand(tmp_path / "bad.parquet", 95)


def test_one_row_for_each_database_is_a_day_of_one_slot(write):
    found = read_demand(write("database,cpu_cores\na,1\nb,2\n"), 95)
    assert found.slots == ("00:00",) and np.array_equal(found.high.ravel(), [1, 2])


def test_rules(write):
    first, second = read_rules(write("database,apart,labels,pin,host\na,x y,zone=1 k=v,h-1,\nb,,,,h-2\n"))
    assert (first.apart, first.labels, first.pin, first.host) == (("x", "y"), {"zone": "1", "k": "v"}, "h-1", "")
    assert (second.row, second.host) == (3, "h-2")


@pytest.mark.parametrize("separator", ";\t")
def test_rules_with_the_separators_of_spreadsheets(write, separator):
    (rule,) = read_rules(write("database,apart,host\na,x y,h-1\n".replace(",", separator)))
    assert (rule.database, rule.apart, rule.host) == ("a", ("x", "y"), "h-1")


@pytest.mark.parametrize(
    "text, message",
    [
        ("database\na\na\n", "row 3: database a is there already in row 2"),
        ("database,labels\na,zone\n", "row 2: 'zone' is no label"),
        ("database,customer\na,b\n", "must have the column database"),
        ("name\na\n", "must have the column database"),
        ("", "must have the column database"),
        ("database,apart,apart\na,x,y\n", "each once"),
        ("database,apart\na,x\n\nb,x,y\n", "row 4 has more cells than columns; separate several groups"),
    ],
)
def test_bad_rules(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_rules(write(text))


def test_classes(write):
    (found,) = read_classes(write("classes:\n- {name: a, capacity: {cpu_cores: 4}, price: 2, names: [x]}\n", "h.yaml"))
    assert found.capacity["cpu_cores"].value == 4 and [found.host_name(n) for n in range(2)] == ["x", "a-2"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: 1\n", "write a list 'classes'"),
        ("classes: []\n", "write a list 'classes'"),
        ("classes:\n- {name: a, capacity: {cpu: 1}}\n", "class 1.*cpu is no resource"),
        ("classes:\n- {name: a, capacity: {cpu_cores: 0}}\n", "class 1"),
        ("classes:\n- {name: a/b, capacity: {cpu_cores: 1}}\n", "class 1"),
        ("classes:\n- {name: a, names: [x/y], capacity: {cpu_cores: 1}}\n", "class 1"),
        ("classes: [\n", "not YAML"),
    ],
)
def test_bad_classes(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_classes(write(text, "h.yaml"))
