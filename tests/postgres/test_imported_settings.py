from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.imported_settings import fit, import_settings
from pgherd.postgres.installations import Installation

OWN = """
data_directory = '/var/lib/postgresql/15/main'
hba_file = '/etc/postgresql/15/main/pg_hba.conf'
port = 5432
listen_addresses = '*'
max_connections = 200
ssl = on
ssl_cert_file = '/etc/ssl/certs/ssl-cert-snakeoil.pem'
shared_buffers = 2GB
Work_Mem = '16MB'
random_page_cost = 1.1
archive_mode = on
archive_command = 'curl -u me:secret https://backup'
primary_conninfo = 'host=x password=secret'
synchronous_standby_names = '*'
shared_preload_libraries = 'pg_stat_statements, nowhere_to_be_found'
pg_stat_statements.track = all
nowhere_to_be_found.level = 3
log_min_duration_statement = 250ms
logging_collector = on
lc_messages = 'de_DE.UTF-8'
no_such_setting_at_all = 7
include_dir 'conf.d'
"""


def test_fit_by_reason() -> None:
    ignored = {"port": "5433", "ssl_key_file": "x", "recovery_target_xid": "7", "a.b": "1"}
    ignored |= {"log_line_prefix": "%h ", "log_checkpoints": "off"}
    # Of the role or database that reads them, such as ALTER ROLE monitoring SET search_path.
    ignored |= {"search_path": "app", "default_transaction_read_only": "on", "statement_timeout": "5s", "role": "app"}
    accepted, dropped = fit({"work_mem": "1MB", **ignored}, set())
    assert accepted == {"work_mem": "1MB"}
    assert {setting.name for setting in dropped} == set(ignored)
    assert all(setting.why for setting in dropped)


def test_fit_preloads_what_there_is() -> None:
    settings = {"shared_preload_libraries": '"$libdir/auto_explain", other', "auto_explain.log_min_duration": "1s", "other.x": "1"}
    accepted, dropped = fit(settings, {"auto_explain"})
    assert accepted == {"shared_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "1s"}
    assert [(setting.name, setting.value) for setting in dropped] == [("shared_preload_libraries", "other"), ("other.x", "1")]


def test_like_a_file(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    source = place / "postgresql.conf"
    source.write_text(OWN)
    imported = import_settings(node, str(source), installation, account, str(place))
    assert imported.settings == {
        "shared_preload_libraries": "pg_stat_statements",
        "max_connections": "200",
        "shared_buffers": "2GB",
        "work_mem": "16MB",
        "random_page_cost": "1.1",
        "pg_stat_statements.track": "all",
        "log_min_duration_statement": "250ms",
    }
    reason = {setting.name: setting.why for setting in imported.dropped}
    assert "no such setting" in reason["no_such_setting_at_all"]
    assert {"port", "ssl", "archive_command", "synchronous_standby_names", "logging_collector", "lc_messages"} <= set(reason)
    assert "secret" not in str(imported), "no report contains passwords"
    assert len(imported.warnings) == 1 and "conf.d: No such file or directory" in imported.warnings[0]


@pytest.mark.parametrize("source", ["/nowhere/postgresql.conf", "host=/nowhere dbname=x", "postgresql://127.0.0.1:1/x"])
def test_what_cannot_be_read_is_a_usage_error(node: LocalNode, installation: Installation, place: Path, source: str) -> None:
    with pytest.raises(UsageError, match="--settings-from"):
        import_settings(node, source, installation, None, str(place))


def test_a_file_with_a_syntax_error_names_its_line(node: LocalNode, installation: Installation, place: Path) -> None:
    (place / "broken.conf").write_text("work_mem = 1MB\nshared_buffers\n")
    with pytest.raises(UsageError, match=r"broken\.conf, line 2"):
        import_settings(node, str(place / "broken.conf"), installation, None, str(place))
