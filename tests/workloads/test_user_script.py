from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.workloads.pgbench import PgbenchLoader
from pgherd.workloads.user_script import (
    ScriptLoader,
    ScriptWorkload,
    carry,
    find_init_data,
    pace,
    parse_script,
    pgbench_error,
    psql_error,
    require_ending,
    require_no_session_state,
    require_read_only,
    require_unchanged,
    stage,
)

FIXTURES = Path(__file__).parents[1] / "fixtures/workloads"


@pytest.mark.parametrize(
    ("text", "source", "weight"),
    [
        ("a.sql", "a.sql", 1),
        ("a.sql@4", "a.sql", 4),
        ("my@dir/a.sql@45", "my@dir/a.sql", 45),
        ("my@dir/a.sql", "my@dir/a.sql", 1),
        ("builtin:select-only@2", "builtin:select-only", 2),
    ],
)
def test_parse_script(text: str, source: str, weight: int) -> None:
    assert parse_script(text, os.path.exists) == Script(source=source, weight=weight)


@pytest.mark.parametrize("text", ["a.sql@", "a.sql@0", "a.sql@-1", "a.sql@1.5", "@4"])
def test_a_weight_is_a_whole_number(text: str) -> None:
    with pytest.raises(UsageError, match="whole number"):
        parse_script(text, os.path.exists)


# Case → line and required text of the message, for captured output of pgbench on scripts with one error each.
SAID = {
    "missing-table": (7, 'relation "nope" does not exist'),
    "bad-set": (1, 'syntax error in command "set"'),
    "open-if": (2, "\\if without matching \\endif"),
    "set-division": (1, "division by zero"),
    "gset": (1, "division by zero"),
    "combined": (2, None),
    "empty": (None, "empty command list"),
    "pipeline": (None, None),
    "shell": (3, "could not launch shell command"),
}


@pytest.mark.parametrize("major", [15, 18])
@pytest.mark.parametrize("protocol", ["simple", "prepared"])
@pytest.mark.parametrize("case", SAID)
def test_pgbench_error(case: str, protocol: str, major: int) -> None:
    captured = json.loads((FIXTURES / f"pgbench-errors-{major}.json").read_text())[case]
    assert captured[protocol]["code"] != 0
    message = pgbench_error(captured[protocol]["err"], "mine.sql", captured["script"])
    line, expected = SAID[case]
    assert message.startswith("mine.sql:")
    if line is not None:
        assert message.startswith(f"mine.sql:{line}: ")
    if expected is not None:
        assert expected in message
    assert "aborted" not in message and '"-"' not in message and "\n" not in message


@pytest.mark.parametrize("severity", ["FEHLER", "ERREUR", "错误"])
def test_the_error_of_a_server_in_another_language(severity: str) -> None:
    captured = json.loads((FIXTURES / "pgbench-errors-15.json").read_text())["gset"]
    english = pgbench_error(captured["simple"]["err"], "mine.sql", captured["script"])
    message = pgbench_error(captured["simple"]["err"].replace("ERROR", severity), "mine.sql", captured["script"])
    assert message == english.replace("ERROR", severity) and f"{severity}:  division by zero" in message


@pytest.mark.parametrize("major", [15, 18])
def test_an_unset_variable_shows_in_the_simple_protocol_only(major: int) -> None:
    """Dry runs use it first, because in prepared mode the variable is silently NULL."""
    captured = json.loads((FIXTURES / f"pgbench-errors-{major}.json").read_text())["unset-variable"]
    assert captured["prepared"]["code"] == 0
    message = pgbench_error(captured["simple"]["err"], "mine.sql", captured["script"])
    assert message.startswith('mine.sql:2: ERROR:  syntax error at or near ":"')


@pytest.mark.parametrize("major", [15, 18])
def test_psql_error(major: int) -> None:
    captured = json.loads((FIXTURES / f"psql-errors-{major}.json").read_text())
    messages = {case: psql_error(output["err"], "init.sql") for case, output in captured.items()}
    assert messages["missing-table"] == 'init.sql:4: ERROR:  relation "nope" does not exist LINE 2:  nope VALUES (1);'
    assert messages["missing-file"] == "init.sql:2: error: missing.csv: No such file or directory"
    assert messages["raise"].startswith("init.sql:3: ERROR:  no HINT:  yes")
    assert messages["bad-meta"] == "init.sql:2: error: invalid command \\nonsense"
    assert psql_error("psql: error: connection failed\n", "init.sql") == "init.sql: psql: error: connection failed"


def test_the_file_and_the_scale_decide_the_contents(tmp_path: Path) -> None:
    node, workload = LocalNode(), ScriptWorkload((Script(source="x.sql"),))
    (tmp_path / "a.sql").write_text("CREATE TABLE a ();")
    (tmp_path / "b.sql").write_text("CREATE TABLE b ();")
    (tmp_path / "copy.sql").write_text("CREATE TABLE a ();")

    def filling(name: str, scale: int = 1):
        return workload.filling(node, Database(workload="script", scale=scale, init=str(tmp_path / name)))

    assert filling("a.sql").identity == filling("copy.sql").identity
    assert len({filling("a.sql").identity, filling("b.sql").identity, filling("a.sql", 2).identity}) == 3
    assert re.fullmatch(r"script-1-[0-9a-f]{12}", filling("a.sql").identity)
    assert isinstance(filling("a.sql"), ScriptLoader)
    assert filling("a.sql").size_estimate is None
    with pytest.raises(UsageError, match=r"--init-script .*missing\.sql cannot be read: No such file"):
        filling("missing.sql")


@pytest.mark.parametrize("command", ["i", "ir", "include", "include_relative"])
def test_an_init_file_that_takes_in_others_is_refused(tmp_path: Path, command: str) -> None:
    """The other file is not in the identity of the template."""
    file = tmp_path / "a.sql"
    database = Database(workload="script", init=str(file))
    file.write_text(f"CREATE TABLE a ();\n\\{command} b.sql\n")
    with pytest.raises(UsageError, match=rf"a\.sql:2: \\{command} includes another file"):
        ScriptWorkload().filling(LocalNode(), database)
    file.write_text(f"-- \\{command} b.sql\nSELECT '\\{command} b.sql';\nCOPY a FROM STDIN;\n\\{command}\n\\.\n\\copy a FROM 'a.csv'\n")
    assert ScriptWorkload().filling(LocalNode(), database).identity


def test_without_an_init_file_scripts_run_on_pgbenchs_tables() -> None:
    workload = ScriptWorkload((Script(source="x.sql"),))
    assert workload.filling(LocalNode(), Database(workload="script", scale=3)) == PgbenchLoader("bench", 3)
    assert (workload.read_only, workload.size_estimate(3)) == (False, None)
    assert workload.scripts() == (Script(source="x.sql"),)


def test_staged_scripts_can_be_read_by_anybody_and_keep_their_mix(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    for name in ("here/new.sql", "there/new.sql"):
        (tmp_path / name).write_text(f"SELECT '{name}';")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "out").mkdir()
    mix = [
        Script(source=str(tmp_path / "here/new.sql"), weight=4),
        Script(source="builtin:tpcb-like"),
        Script(source=str(tmp_path / "there/new.sql")),
    ]
    staged = stage(LocalNode(), mix, str(tmp_path / "out"))
    assert [script.weight for script in staged] == [4, 1, 1]
    assert staged[1].source == "builtin:tpcb-like"
    texts = [Path(staged[index].source).read_text() for index in (0, 2)]
    assert texts == ["SELECT 'here/new.sql';", "SELECT 'there/new.sql';"]
    assert all(Path(staged[index].source).stat().st_mode & 0o777 == 0o644 for index in (0, 2))
    with pytest.raises(UsageError, match="--script .* cannot be read"):
        stage(LocalNode(), [Script(source=str(tmp_path / "nowhere.sql"))], str(tmp_path / "out"))


def test_scripts_are_carried_to_another_node_where_every_account_can_read_them(tmp_path):
    """Two of one name do not overwrite each other."""
    scripts = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0-mine.sql").write_text(f"SELECT '{name}';\n")
        scripts.append(Script(source=str(tmp_path / name / "0-mine.sql"), weight=3))
    builtin = Script(source="builtin:select-only")
    first, again, second = carry(LocalNode(), LocalNode(), [scripts[0], builtin, scripts[1]], str(tmp_path / "there"))
    assert again == builtin and first.weight == 3
    assert [Path(script.source).read_text() for script in (first, second)] == ["SELECT 'x';\n", "SELECT 'y';\n"]
    assert all(Path(script.source).stat().st_mode & 0o777 == 0o644 for script in (first, second))
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o711
    assert carry(LocalNode(), LocalNode(), [builtin], str(tmp_path / "nothing")) == (builtin,) and not (tmp_path / "nothing").exists()


def test_the_pace_of_a_mix_is_weighted_and_a_script_without_end_counts_as_long_as_it_was_waited_for():
    answers: list[Completed] = []

    def run(command, timeout):
        answer = answers.pop(0)
        if answer.code < 0:
            raise TimeoutError
        return answer

    node = SimpleNamespace(run=run)
    target = SimpleNamespace(node=node, bin="/pg", account=None, socket_dir="/s", port=5432, user="postgres")
    mix = (Script(source="builtin:select-only", weight=3), Script(source="builtin:tpcb-like"))

    def took(*codes):
        answers[:] = [Completed(code, "latency average = 2.000 ms\n", "") for code in codes]
        return pace(target, "bench", mix, scale=1, protocol="simple", read_only=False, timeout=10.0)

    assert took(0, 0) == pytest.approx(0.002)
    assert took(0, -9) == pytest.approx((3 * 0.002 + 10.0) / 4)
    assert took(0, 2) is None, "one that cannot be repeated"


# Data files of an --init-script file

NODE = LocalNode()
TEXT = "CREATE TABLE t (a int);\n\\copy t FROM 'it''s data.csv'\n\\copy t FROM PROGRAM 'zcat more.csv.gz'\n\\copy t FROM missing.csv\n"


@pytest.fixture
def init(tmp_path: Path) -> Path:
    (tmp_path / "it's data.csv").write_text("1\n")
    (tmp_path / "more.csv.gz").write_bytes(b"2")
    (tmp_path / "t").mkdir()
    os.mkfifo(tmp_path / "zcat")
    (tmp_path / "init.sql").write_text(TEXT)
    return tmp_path / "init.sql"


def find(init: Path) -> InitData:
    return find_init_data(NODE, str(init), init.read_text())


def test_files_that_are_there_are_found_and_nothing_else(init: Path) -> None:
    data = find(init)
    assert data.files == ("it's data.csv", "more.csv.gz") and data.directory == str(init.parent)
    init.write_text("\\! sort init.sql\n")
    assert find(init) == InitData(directory=str(init.parent)), "the digest of the file itself is separate"


def test_another_content_is_another_hash_and_the_place_does_not_matter(init: Path, tmp_path: Path) -> None:
    before = find(init)
    (init.parent / "more.csv.gz").write_bytes(b"3")
    assert find(init).digest != before.digest
    (init.parent / "more.csv.gz").write_bytes(b"2")
    assert find(init).digest == before.digest
    other = tmp_path / "other"
    other.mkdir()
    for name in (*before.files, "init.sql"):
        (other / name).write_bytes((init.parent / name).read_bytes())
    assert find(other / "init.sql").digest == before.digest


def test_contents_that_changed_places_are_another_database(init: Path) -> None:
    before = find(init)
    (init.parent / "it's data.csv").write_bytes(b"2")
    (init.parent / "more.csv.gz").write_text("1\n")
    assert find(init).digest != before.digest


def test_a_database_is_known_by_its_data_too(init: Path) -> None:
    database = Database(workload="script", init=str(init))

    def identity(item: Database = database) -> str:
        return ScriptWorkload().filling(NODE, item).identity

    before = identity()
    prepared = database.model_copy(update={"init_data": find(init)})
    (init.parent / "more.csv.gz").write_bytes(b"changed")
    assert identity() != before
    assert identity(prepared) == before, "a run keeps its data files"


def test_what_has_changed_meanwhile_is_not_loaded(init: Path) -> None:
    data = find(init)
    require_unchanged(NODE, str(init), data)
    (init.parent / "more.csv.gz").write_bytes(b"changed")
    with pytest.raises(UsageError, match=r"it's data\.csv, more\.csv\.gz in .* have changed since this run was prepared; restore them"):
        require_unchanged(NODE, str(init), data)
    (init.parent / "more.csv.gz").unlink()
    with pytest.raises(UsageError, match=r"^more\.csv\.gz, which --init-script .* reads, is no longer in"):
        require_unchanged(NODE, str(init), data)
    require_unchanged(NODE, str(init), InitData(directory="/nowhere"))


def test_what_the_kernel_shows_and_what_is_written_is_no_data(init: Path) -> None:
    (init.parent / "log.txt").write_text("of the last time\n")
    init.write_text("\\o log.txt\n\\set up `cat /proc/uptime /sys/kernel/profiling /dev/null`\nCOPY t TO '/proc/self/comm';\n")
    assert find(init) == InitData(directory=str(init.parent))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("SELECT 1;\nBEGIN READ\n WRITE;\nUPDATE t SET a = 1;", ":2: 'READ WRITE' can make"),
        ("set Default_Transaction_Read_Only = off;", ":1: 'Default_Transaction_Read_Only' can make"),
        ("SELECT set_config('transaction_read_only', 'off', false);", ":1: 'transaction_read_only' can make"),
        ("SELECT 1;\nBEGIN READ/* a /* b */\n*/WRITE;", ":2: 'READ WRITE' can make"),
        ("BEGIN READ -- of a comment\n WRITE;", ":1: 'READ WRITE' can make"),
        ("-- a long comment\n-- and one more\n\nSELECT 1;\nBEGIN READ WRITE;", ":5: 'READ WRITE' can make"),
        ("SELECT '--'; BEGIN READ WRITE;", ":1: 'READ WRITE' can make"),
        ("SELECT '--'; BEGIN READ/**/WRITE;", ":1: 'READ WRITE' can make"),
        ("SELECT '/*'; BEGIN READ/**/WRITE; SELECT '*/';", ":1: 'READ WRITE' can make"),
    ],
)
def test_a_script_that_turns_read_only_off_is_not_only_read(tmp_path, text, result):
    file = tmp_path / "own.sql"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(f"{file}{result}")):
        require_read_only(LocalNode(), [Script(source="builtin:select-only"), Script(source=str(file))])


def test_a_script_that_prepares_transactions_leaves_them(tmp_path):
    file = tmp_path / "own.sql"
    file.write_text("BEGIN;\nprepare  transaction 'a';\n")
    with pytest.raises(UsageError, match=re.escape(f"{file}:2: 'prepare transaction' leaves transactions on an external server")):
        require_ending(LocalNode(), [Script(source=str(file))])
    file.write_text("PREPARE/**/TRANSACTION 'a';\n")
    with pytest.raises(UsageError, match="leaves transactions"):
        require_ending(LocalNode(), [Script(source=str(file))])
    file.write_text("PREPARE s AS SELECT 1;\nEXECUTE s;")
    require_ending(LocalNode(), [Script(source=str(file))])


@pytest.mark.parametrize("text", ["create temp table a (b int);", "CREATE LOCAL TEMPORARY TABLE a (b int);", "SELECT 1 INTO/**/TEMP a;"])
def test_a_script_with_temporary_tables_leaves_them_behind_a_pooler(tmp_path, text):
    file = tmp_path / "own.sql"
    file.write_text(text)
    with pytest.raises(UsageError, match="leaves a table in the sessions that PgBouncer shares between clients; name the server itself"):
        require_no_session_state(LocalNode(), [Script(source=str(file))], "PgBouncer")
    file.write_text("SELECT temp FROM weather;")
    require_no_session_state(LocalNode(), [Script(source=str(file))], "PgBouncer")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("SET work_mem = '1MB';", ":1: 'SET' leaves state"),
        ("\\set a 1\n\\set b 2\n\nset session search_path = x;", ":4: 'set' leaves state"),
        ("BEGIN; SET LOCAL jit = off; END;\n-- SET a\n/* b */ SET ROLE x;", ":3: 'SET' leaves state"),
        ("SELECT 1 AS a \\gset\nSET a.b = :a;", ":2: 'SET' leaves state"),
        ("SELECT 1 \\; SET a.b = 1;", ":1: 'SET' leaves state"),
        ("SELECT 'it''s';\nPREPARE s AS SELECT 1;", ":2: 'PREPARE' leaves state"),
        ("LISTEN a;", ":1: 'LISTEN' leaves state"),
        ("BEGIN;\nDECLARE c CURSOR\nWITH HOLD FOR SELECT 1;\nEND;", ":2: 'DECLARE c CURSOR WITH HOLD' leaves state"),
        ("SELECT pg_advisory_lock(1);", ":1: 'pg_advisory_lock' leaves state"),
        ("SELECT a,\n pg_try_advisory_lock_shared (a, 2) FROM t;", ":2: 'pg_try_advisory_lock_shared' leaves state"),
    ],
)
def test_a_script_leaves_no_state_behind_a_pooler(tmp_path, text, result):
    file = tmp_path / "own.sql"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(f"{file}{result} in the sessions that PgBouncer shares between clients")):
        require_no_session_state(LocalNode(), [Script(source=str(file))], "PgBouncer")


@pytest.mark.parametrize(
    "text",
    [
        "\\set a random(1, 9)\nUPDATE t\nSET a = :a\nWHERE b = 2;",
        "BEGIN;\nSET LOCAL work_mem = '1MB';\nSET TRANSACTION READ ONLY;\nset  constraints ALL DEFERRED;\nEND;",
        "SELECT '; SET a = 1', $$; SET a = 1;$$, $x$; LISTEN a;$x$, E'\\'; SET a = 1;', \"; SET a = 1\", 'pg_advisory_lock(1)';",
        "-- ; SET a = 1;\n/* ; LISTEN a; */ SELECT 1;",
        "BEGIN;\nSELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2);\nDECLARE c CURSOR FOR SELECT 1;\nFETCH c;\nEND;",
        "\\setshell a echo it's\nSELECT setting, prepare, listen FROM settings;",
        "MERGE INTO t USING u ON a = b WHEN MATCHED THEN UPDATE SET c = 1;",
    ],
)
def test_what_ends_with_its_transaction_goes_through_a_pooler(tmp_path, text):
    file = tmp_path / "own.sql"
    file.write_text(text)
    require_no_session_state(LocalNode(), [Script(source=str(file))], "PgBouncer")


def test_an_open_transaction_at_the_end_of_an_init_file_is_named(tmp_path):
    ran = []

    def run(command, timeout=60.0):
        ran.append(list(command.argv))
        return Completed(1, "", 'psql:<stdin>:1: NOTICE:  x\nFEHLER:  ungültig: "745 is the open transaction"\n')

    target = SimpleNamespace(node=SimpleNamespace(run=run, exists=os.path.exists), bin="/pg", account=None)
    target.socket_dir, target.port, target.user = "/s", 5432, "postgres"
    init = tmp_path / "init.sql"
    loader = ScriptLoader(database="bench", scale=1, init=str(init), digest="0", data=InitData(directory=str(tmp_path)))
    with pytest.raises(UsageError, match=r"--init-script .*init\.sql ends inside a transaction; add COMMIT"):
        loader.load(target)
    (argv,) = ran
    assert argv.index("--file=-") < next(number for number, word in enumerate(argv) if "pg_current_xact_id_if_assigned" in word)


def test_a_script_that_reads_may_be_only_read(tmp_path):
    file = tmp_path / "own.sql"
    file.write_text("BEGIN;\nSELECT reader, write FROM read_write;\nEND;")
    require_read_only(LocalNode(), [Script(source=str(file))])
    with pytest.raises(UsageError, match="cannot be read"):
        require_read_only(LocalNode(), [Script(source=str(tmp_path / "gone.sql"))])
