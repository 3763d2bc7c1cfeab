"""Inputs from public bug reports (tests/field_reports) on real servers, and the scanner of SQL files against psql."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.drivers import pgbench_output
from pgherd.host.server_user import server_account
from pgherd.node.local import LocalNode
from pgherd.postgres import configuration, installations
from pgherd.postgres.instance import Instance, initdb
from pgherd.workloads.script_parser import backslash_commands
from reports import EMPTY_DATABASES, LONG_TRANSACTIONS, PRELOADING, RATES, Refused

NODE = LocalNode()
SMALL = ("--databases", "1", "--repeats", "1", "--scale", "1", "--clients", "1", "--time-budget", "9s", "--no-report", "--json")


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    root = Path(tempfile.mkdtemp(prefix="reports-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    usable = installations.reachable_copy(NODE, installations.choose(NODE), account, str(root))
    instance = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="reports")
    try:
        initdb(NODE, usable, instance.data_dir, account=account)
        instance.write_settings({"fsync": "off", "shared_buffers": "32MB"})
        instance.start()
        instance.wait_ready()
        instance.sql("CREATE TABLE t (a text)")
        yield instance
    finally:
        instance.disconnect(["postgres"])
        instance.stop("immediate", 10)
        shutil.rmtree(root)


def client(server: Instance, tool: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    argv = [server.installation.tool(tool), "-h", server.socket_dir, "-p", str(server.port), "-U", server.user, *arguments, "postgres"]
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60)


MARK = "this command is run"
NOISE = ["-- from stdin;\n", "/* from stdin; /* \\echo no */ */ ", "\n", " "]
PARTS = [
    "'from stdin;'",
    "'\\echo no'",
    '1 AS "from stdin;"',
    "$$from stdin;\n\\echo no\n$$",
    "$a$ ' $$ $a$",
    "E'it\\'s; \\\\'",
    "(1)",
]
STATEMENTS = [
    f"\\echo {MARK}\n",
    f"\\set n 1 \\echo {MARK}\n",
    f"\\set n 'a \\'\\\\ b' \\\\ SELECT 1; \\echo {MARK}\n",
    f"\\! true \\echo {MARK}\n",
    "COPY t FROM STDIN;\n\\echo no\n'\n\\.\n",
    f"COPY t (a) FROM STDIN WITH (FORMAT csv); \\echo {MARK}\n\\i no\n\\.\n",
    "COPY t FROM STDIN \\; COPY t FROM STDIN;\n\\echo no\n\\.\n/*\n\\.\n",
    "COPY t FROM STDIN \\g\n$$\n\\.\n",
    "\\copy t from stdin csv\n\\echo no\n\\.x\n\\.\n",
    "\\copy (SELECT 'from stdin') to stdout\n",
    "COPY (SELECT * FROM t) TO STDOUT;\n",
    "SELECT 1 \\; SELECT 2;\n",
]


@settings(max_examples=settings().max_examples * 3 // 5)  # each is a run of psql
@given(
    st.lists(
        st.sampled_from(NOISE)
        | st.sampled_from(STATEMENTS)
        | st.lists(st.sampled_from(PARTS), max_size=4).map(lambda p: f"SELECT {', '.join(p)};\n"),
        max_size=12,
    )
)
def test_psql_runs_the_commands_that_the_scanner_finds(server: Instance, pieces: list[str]) -> None:
    script = "".join(pieces)
    found = sum(command == "echo" for _, command in backslash_commands(script, psql=True))
    finished = client(server, "psql", "--no-psqlrc", "-q", "-f", "-", text=script)
    assert finished.stderr == ""
    assert finished.stdout.count(MARK) == found, (script, finished)


def test_no_transaction_in_a_run_of_pgbench_is_a_result(server: Instance) -> None:
    """No transaction is due in 2 s with a probability of 99.8 %, at 0.001 per second. The last attempt counts."""
    for _ in range(3):
        finished = client(server, "pgbench", "-n", "-f", "-", "-R", "0.001", "-T", "2", text="SELECT 1;\n")
        report = pgbench_output.read_report({"stdout": finished.stdout, "stderr": finished.stderr})
        if report.transactions == 0:
            break
    assert (report.transactions, report.failed, report.seconds) == (0, 0, None)


@pytest.fixture
def files(pgherd, place) -> Path:
    (place / "extension.sql").write_text(
        "CREATE EXTENSION pg_stat_statements;\nSELECT pg_stat_statements_reset();\nCREATE TABLE t AS SELECT 1 AS a;\n"
    )
    (place / "größe = 'x'@corp.sql").write_text("SELECT a FROM t;\n")
    return place


def test_an_extension_that_must_be_preloaded_is_loaded_with_it(pgherd, files: Path) -> None:
    words = ("--init-script", str(files / "extension.sql"), "--script", str(files / "größe = 'x'@corp.sql"), "--duration", "1s")
    without = pgherd("density", *SMALL, *words)
    assert without.code == 2 and "must be loaded via" in without.message, without
    row, *_ = PRELOADING
    (files / "postgresql.conf").write_text("work_mem = 9MB\n")
    (files / "postgresql.auto.conf").write_text(configuration.write(row.settings))
    ended = pgherd("density", *SMALL, *words, "--settings-from", str(files / "postgresql.conf"))
    assert ended.code in (0, 1), ended
    assert row.settings.items() <= pgherd.record()["settings"].items()
    trials = pgherd.trials()
    assert trials and all(trial["error"] is None and trial["phases"][0]["targets"][0]["throughput"] > 10 for trial in trials)


def test_statements_that_need_a_setting_are_loaded_with_it(pgherd, place: Path) -> None:
    """The settings are those of the loading server, of the rehearsal and of the measured server."""
    init = place / "init.sql"
    init.write_text(
        "CREATE TABLE t AS SELECT DATE '31/12/2020' AS a;\nBEGIN;\nINSERT INTO t SELECT DATE '30/12/2020';\nPREPARE TRANSACTION 'p';\n"
        "COMMIT PREPARED 'p';\n"
    )
    (place / "count.sql").write_text("SELECT 1 / (count(*) - 1) FROM t;\n")
    words = ("--init-script", str(init), "--script", str(place / "count.sql"), "--read-only", "--duration", "1s")
    for chosen, message in (((), "out of range"), (("DateStyle=ISO, DMY",), "prepared transactions are disabled")):
        refused = pgherd("density", *SMALL, *words, *(word for setting in chosen for word in ("--set", setting)))
        assert refused.code == 2 and message in refused.message, refused
    ended = pgherd("density", *SMALL, *words, "--set", "DateStyle=ISO, DMY", "--set", "max_prepared_transactions=2")
    assert ended.code in (0, 1), ended
    assert pgherd.trials()[0]["error"] is None


@pytest.mark.parametrize("row", [*RATES, *LONG_TRANSACTIONS, *EMPTY_DATABASES], ids=lambda row: row.report)
def test_what_gives_no_number_is_refused_before_the_run(pgherd, place, row: Refused) -> None:
    for name, text in row.files.items():
        (place / name).write_text(text)
    ended = pgherd("density", *SMALL, *(str(place / word) if word in row.files else word for word in row.options))
    assert ended.code == 2, ended
    assert re.search(row.right, json.loads(ended.out)["error"]), ended
