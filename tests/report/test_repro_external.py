"""Trials on external servers as scripts: run with a pgbench that only notes how it was called."""

import json
import shutil
import subprocess

import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report import repro_external
from pgherd.report.repro_script import script

HOSTILE = "host='/a b' dbname=$(touch x) user=`id`"
PGBENCH = """#!/usr/bin/python3
import json, os, sys, time
time.sleep(0.3 if "-c" in sys.argv and sys.argv[sys.argv.index("-c") + 1] == "7" else 0)
if "-t" in sys.argv:  # a try of one transaction before the load
    if os.environ.get("WRITABLE"):
        sys.exit("pgbench: error: client 0 aborted: ERROR:  division by zero")
    sys.exit()
with open(os.environ["NOTED"], "a") as file:
    file.write(json.dumps([sys.argv[1:], os.environ.get("PGOPTIONS")]) + chr(10))
print("tps = 12.5 (without initial connection time)")
"""


def result(*dsns, load=None):
    servers = {
        f"db{n:02d}": Server(bin="/pg/bin", version="18.6", dsn=dsn, databases=(Database(scale=3),)) for n, dsn in enumerate(dsns, 1)
    }
    containers = tuple(Container(name=name, runtime="external", servers=(server,)) for name, server in servers.items())
    loads = {f"local/{name}/pg/bench": load or Load(clients=2, client_placement="outside") for name in servers}
    phase = Phase(name="steady", warmup=0.5, seconds=2, loads=loads)
    trial = Trial(point={"clients": 2}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=(phase,))
    return TrialResult(id="0003", trial=trial, started=0, ended=1)


RECORD = RunRecord(run="20260101-000000-scaling-ab12", study="scaling", options={}, started=0, pgherd="1")


def played(found, tmp_path):
    (tmp_path / "pgbench").write_text(PGBENCH)
    (tmp_path / "pgbench").chmod(0o755)
    file, noted = tmp_path / "repeat.sh", tmp_path / "noted"
    file.write_text(script(found, RECORD))
    environment = {"PATH": "/usr/bin:/bin", "BIN": str(tmp_path), "NOTED": str(noted), "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh", str(file)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("tmp.*")), "its directory is gone"
    return done.stdout, [json.loads(line) for line in noted.read_text().splitlines()]


def test_each_server_gets_pgbench_by_its_dsn(tmp_path):
    out, calls = played(result("host=one dbname=app", HOSTILE), tmp_path)
    assert {arguments[-1] for arguments, _ in calls} == {"host=one dbname=app", HOSTILE}
    for arguments, options in calls:
        assert arguments[arguments.index("-T") + 1] == "3" and arguments[arguments.index("-c") + 1] == "2"
        assert not {"-h", "-p", "-U"} & set(arguments), "the DSN has the address"
        assert options == "-c default_transaction_read_only=on"
    assert out == "local/db01/pg/bench\ntps = 12.5 (without initial connection time)\n" + (
        "local/db02/pg/bench\ntps = 12.5 (without initial connection time)\n"
    )


def test_clients_under_sched_batch_are_started_by_chrt(tmp_path):
    found = result("host=one", load=Load(clients=2, client_placement="outside", sched_batch=True))
    assert ' chrt --batch 0 "$BIN"/pgbench ' in script(found, RECORD)
    _, ((_, options),) = played(found, tmp_path)
    assert options == "-c default_transaction_read_only=on"


def test_what_writes_may_write_and_takes_the_users_script(tmp_path):
    own = tmp_path / "it's own.sql"
    own.write_text("SELECT 1;")
    _, calls = played(result("host=one", load=Load(scripts=(Script(source=str(own), weight=4),), client_placement="outside")), tmp_path)
    ((arguments, options),) = calls
    assert options is None and f"{own}@4" in arguments


def test_nothing_runs_where_sessions_may_write(tmp_path):
    (tmp_path / "pgbench").write_text(PGBENCH)
    (tmp_path / "pgbench").chmod(0o755)
    noted, environment = tmp_path / "noted", {"PATH": "/usr/bin:/bin", "BIN": str(tmp_path), "TMPDIR": str(tmp_path), "WRITABLE": "1"}
    environment["NOTED"] = str(noted)
    done = subprocess.run(["sh"], input=script(result("host=one"), RECORD), env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "division by zero" in done.stderr and "Nothing was run" in done.stderr
    assert not noted.exists()
    writes = result("host=one", load=Load(scripts=(Script(source="builtin:tpcb-like"),), client_placement="outside"))
    done = subprocess.run(["sh"], input=script(writes, RECORD), env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and noted.exists(), "a load that writes needs no such session"


def test_only_where_all_is_theirs():
    assert repro_external.uses_external_servers(result("host=one"))
    assert not repro_external.uses_external_servers(result("host=one", load=Load(driver="fio", scripts=())))


def test_shellcheck_has_nothing_to_object(tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is missing")
    file = tmp_path / "repeat.sh"
    file.write_text(script(result("host=one", HOSTILE), RECORD))
    done = subprocess.run(["shellcheck", "--exclude=SC2016", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
