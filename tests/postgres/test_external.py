"""What is said of a server that was looked at. tests/it/test_external.py has a real one."""

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import external
from pgherd.postgres.external import TABLES, Found


def found(**changes):
    return Found(**{"dsn": "host=h", "version": "17.2", "major": 17, "database": "app", "bytes": 1, "scale": 5} | changes)


def test_a_load_that_can_run():
    external.insist(found(), builtin=True, writes=True, scale=None)
    external.insist(found(), builtin=True, writes=False, scale=5)
    external.insist(found(scale=None, missing=TABLES), builtin=False, writes=True, scale=None)
    external.insist(found(missing=("pgbench_history",)), builtin=True, writes=False, scale=None)
    external.insist(found(read_only="it is a standby"), builtin=True, writes=False, scale=None)


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ({"read_only": "it is a standby"}, {"writes": True}, "takes no writes: it is a standby; use --workload select-only"),
        ({"missing": TABLES, "scale": None}, {"scale": 3}, "has no pgbench_accounts, pgbench_branches, .*pgbench -i -s 3 'host=h'"),
        ({"missing": ("pgbench_history",)}, {"writes": True}, "has no pgbench_history"),
        ({}, {"scale": 6}, "--scale is 6, but pgbench's tables at --server host=h have scale 5"),
    ],
)
def test_a_load_that_cannot_run_is_refused_with_what_to_do(changes, asked, message):
    with pytest.raises(UsageError, match=message):
        external.insist(found(**changes), **{"builtin": True, "writes": False, "scale": None} | asked)


def test_a_password_file_is_as_libpq_reads_it(tmp_path):
    external._write_passfile(LocalNode(), str(tmp_path / "passfile"), "a:b\\c", None)
    assert (tmp_path / "passfile").read_text() == "*:*:*:*:a\\:b\\\\c\n"
    assert (tmp_path / "passfile").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("dsn", "environment", "read_only", "options"),
    [
        ("host=h", "", True, external.READ_ONLY),
        ("host=h", "", False, ""),
        ("host=h options='-c a.b=1'", "-c jit=off", True, f"-c a.b=1 {external.READ_ONLY}"),
        ("host=h", "-c jit=off", True, f"-c jit=off {external.READ_ONLY}"),
    ],
)
def test_ours_come_after_the_users_options(monkeypatch, dsn, environment, read_only, options):
    monkeypatch.setenv("PGOPTIONS", environment)
    assert external._options(dsn, read_only=read_only) == options
