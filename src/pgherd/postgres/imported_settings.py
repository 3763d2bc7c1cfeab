"""Settings imported from a postgresql.conf or a running server, and adapted to a private server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgherd.model.errors import UsageError
from pgherd.node.files import UnsafeFileError
from pgherd.node.protocol import Node
from pgherd.postgres import configuration, settings_validation
from pgherd.postgres.installations import Installation, library_dirs
from pgherd.postgres.settings import PRIVATE

_NETWORK = "private servers need neither TLS nor network authentication"
_LOG = "the log is a file next to the data directory"
_REPLICATION = "a private server neither archives nor replicates"
_LOCALE = "the private server has the C locale and UTC"
_SESSION = "it is of the sessions of a role or database, and would apply while pgherd loads and samples"
_PATH = "the path or object does not exist for a private server"

_DROPPED: Mapping[str, str] = {
    **PRIVATE,
    **dict.fromkeys(("bonjour", "bonjour_name", "db_user_namespace", "gss_accept_delegation"), _NETWORK),
    **dict.fromkeys(("event_source", "log_timezone"), _LOG),
    **dict.fromkeys(("log_checkpoints", "log_line_prefix"), "pgherd reads checkpoints and their times from the log"),
    **dict.fromkeys(("restore_command", "promote_trigger_file", "synchronous_standby_names", "synchronized_standby_slots"), _REPLICATION),
    **dict.fromkeys(("primary_conninfo", "primary_slot_name", "sync_replication_slots", "hot_standby", "summarize_wal"), _REPLICATION),
    **dict.fromkeys(("timezone", "timezone_abbreviations", "datestyle", "intervalstyle", "default_text_search_config"), _LOCALE),
    **dict.fromkeys(
        ("stats_temp_directory", "temp_tablespaces", "default_tablespace", "dynamic_library_path", "extension_control_path"), _PATH
    ),
    **dict.fromkeys(("search_path", "role", "default_transaction_read_only", "default_transaction_deferrable"), _SESSION),
    **dict.fromkeys(("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"), _SESSION),
    "client_encoding": "set by each connection",
    "application_name": "set by each connection",
}
_DROPPED_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"ssl(_.*)?|krb_.*|gss_.*|oauth_.*", _NETWORK),
    (r"log_(directory|filename|file_mode|rotation_.*|truncate_on_rotation)|syslog_.*", _LOG),
    (r"archive_.*|recovery_.*", _REPLICATION),
    (r"lc_.*", _LOCALE),
)
_PRELOADED = ("shared_preload_libraries", "session_preload_libraries", "local_preload_libraries")


@dataclass(frozen=True)
class IgnoredSetting:
    """Setting of the source that is not imported, with the reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class ImportedSettings:
    """Imported settings, settings that were ignored, and warnings."""

    settings: dict[str, str]
    dropped: tuple[IgnoredSetting, ...] = ()
    warnings: tuple[str, ...] = ()


def import_settings(node: Node, source: str, installation: Installation, account: str | None, workdir: str) -> ImportedSettings:
    """Import settings from ``source``: the path of a postgresql.conf, or the DSN of a server, which is only read.

    The includes of the file and its postgresql.auto.conf are read too.

    Settings that would break or misplace a private server are ignored, and so are settings unknown to this PostgreSQL
    version. ``account`` and ``workdir`` are as for ``validation.complaints``.

    Raises:
        UsageError: The source cannot be read, or is not a postgresql.conf.
    """
    warnings: list[str] = []
    if _is_dsn(node, source):
        settings, restricted = _from_server(node, source)
        if restricted:
            warnings.append(
                f"--settings-from: the server hides some settings from this user, such as its libraries; run GRANT pg_read_all_settings TO "
                f"{restricted} there, or give them with --set"
            )
    else:
        file = _from_file(node, source)
        settings = dict(file.settings)
        warnings += [
            f"--settings-from {source}: {unread}; its settings are missing, give them with --set, or let pgherd read the file"
            for unread in file.includes
        ]
    accepted, dropped = fit(settings, _available(node, installation, settings))
    unknown = _unknown(settings_validation.complaints(node, installation, accepted, account, workdir))
    why = f"PostgreSQL {installation.version} has no such setting"
    dropped += [IgnoredSetting(name, accepted[name], why) for name in accepted if name in unknown]
    return ImportedSettings({name: value for name, value in accepted.items() if name not in unknown}, tuple(dropped), tuple(warnings))


def fit(settings: Mapping[str, str], libraries: set[str]) -> tuple[dict[str, str], list[IgnoredSetting]]:
    """Split settings into those that a private server accepts, and ignored ones. ``libraries`` can be preloaded."""
    accepted: dict[str, str] = {}
    dropped: list[IgnoredSetting] = []
    loaded: set[str] = set()
    for name in _PRELOADED:
        preloaded = _names(settings.get(name, ""))
        missing = [library for library in preloaded if library not in libraries]
        present = [library for library in preloaded if library in libraries]
        loaded.update(present)
        if present:
            accepted[name] = ",".join(present)
        if missing:
            dropped.append(IgnoredSetting(name, ",".join(missing), "not among this PostgreSQL's libraries"))
    for name, value in settings.items():
        if name in _PRELOADED:
            continue
        why = _reason(name, loaded)
        if why:
            # These settings contain passwords, and ignored settings appear in reports.
            secret = name == "primary_conninfo" or name.endswith("_command")
            dropped.append(IgnoredSetting(name, "(not shown)" if secret else value, why))
        else:
            accepted[name] = value
    return accepted, dropped


def _reason(name: str, loaded: set[str]) -> str | None:
    if "." in name:
        family = name.partition(".")[0]
        return None if family in loaded else f"it belongs to {family}, which is not loaded"
    if name in _DROPPED:
        return _DROPPED[name]
    return next((why for pattern, why in _DROPPED_FAMILIES if re.fullmatch(pattern, name)), None)


def _names(value: str) -> list[str]:
    """Parse a list such as ``auto_explain, "$libdir/pg_stat_statements"``; remove quotes and path."""
    names = [part.strip().strip('"').removeprefix("$libdir/") for part in value.split(",")]
    return [name for name in names if name]


def _available(node: Node, installation: Installation, settings: Mapping[str, str]) -> set[str]:
    names = {library for name in _PRELOADED for library in _names(settings.get(name, ""))}
    if not names:
        return set()
    directories = library_dirs(node, installation)
    return {library for library in names if any(node.exists(os.path.join(directory, f"{library}.so")) for directory in directories)}


def _unknown(complaints: list[str]) -> set[str]:
    return {match[1].lower() for text in complaints if (match := re.match(r'unrecognized configuration parameter "([^"]+)"', text))}


def _is_dsn(node: Node, source: str) -> bool:
    if source.startswith(("postgresql://", "postgres://")):
        return True
    return re.match(r"\s*\w+\s*=", source) is not None and not node.exists(source)


def _from_file(node: Node, path: str) -> configuration.Configuration:
    try:
        return configuration.read_files(node, path)
    except UnsafeFileError as error:
        raise UsageError(f"--settings-from: {error}") from error
    except OSError as error:
        raise UsageError(
            f"--settings-from {path} cannot be read: {error.strerror or error}; give the path of a postgresql.conf, or a DSN"
        ) from error


# Values with their units. Settings of this connection and computed settings are excluded, because no user chose them.
_SETTINGS = """SELECT name, pg_catalog.current_setting(name) FROM pg_catalog.pg_settings
WHERE source IN ('configuration file', 'command line', 'global', 'database', 'user', 'database user')
  AND context <> 'internal' ORDER BY name"""


_RESTRICTED = "SELECT current_user::text WHERE NOT pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')"


def _from_server(node: Node, dsn: str) -> tuple[dict[str, str], str]:
    """Return the settings, and the user if the server hides some from it, or ''."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    conninfo = dsn
    try:
        conninfo = make_conninfo(dsn, client_encoding="utf8")  # without an encoding, SQL_ASCII yields bytes
        settings = {str(name).lower(): str(value) for name, value in node.sql(conninfo, _SETTINGS)}
        return settings, "".join(str(user) for (user,) in node.sql(conninfo, _RESTRICTED))
    except psycopg.Error as error:
        raise UsageError(f"--settings-from: the settings of the server cannot be read: {str(error).strip()}") from error
    finally:
        node.disconnect(conninfo)
