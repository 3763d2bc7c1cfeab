"""Connection parameters of libpq from all of their sources: the DSN, the environment, service files and default files.

A driver runs as another user with a clean environment. It receives every parameter explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from psycopg.pq import ConninfoOption

SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Keywords that cannot be recorded or appear on a command line."""
FILES = {"sslrootcert": "root.crt", "sslcrl": "root.crl", "sslcert": "postgresql.crt", "sslkey": "postgresql.key"}
"""Keywords of files → name of their default in ``~/.postgresql``."""
# The address follows from the connection. The others are set by pgherd, or were replaced by what they refer to.
_REPLACED = ("host", "hostaddr", "port", "user", "dbname", "passfile", "service", "servicefile", "options", "fallback_application_name")


def explicit(dsn: str) -> dict[str, str]:
    """Return the parameters of a connection to ``dsn`` that differ from libpq's defaults, from any source.

    A password is included only if the DSN, the environment or the service contains it, and not if a password file does.
    """
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    known = _set(pq.Conninfo.get_defaults())
    if "service" in given:
        # Only a connection resolves it. It also has values that libpq fills in, as does any other connection.
        filled = _of_connection("host=/nonexistent")
        known |= {keyword: value for keyword, value in _of_connection(dsn).items() if filled.get(keyword) != value}
    return known | given


def _of_connection(conninfo: str) -> dict[str, str]:
    """Return the parameters of a connection, which is closed before it is established. Without its service, return none."""
    from psycopg import OperationalError, pq

    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        return _set(connection.info)
    except OperationalError:
        return {}
    finally:
        connection.finish()


def _set(options: Sequence[ConninfoOption]) -> dict[str, str]:
    """Return the values that differ from the ones compiled in."""
    return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None and option.val != option.compiled}


def for_driver(parameters: dict[str, str], *, tls: bool) -> dict[str, str]:
    """Return the parameters for a driver besides its address, password and options.

    With ``tls``, the default files of this user are included, because the driver's user has other ones.

    Raises:
        UsageError: a service file contains a secret other than the password.
    """
    secrets = sorted(set(parameters) & set(SECRETS) - {"password"})
    if secrets:
        raise UsageError(
            f"{', '.join(secrets)} cannot be passed on to pgbench; remove it from the service file, and use a password or a key"
        )
    passed = {name: value for name, value in parameters.items() if name not in (*_REPLACED, "password")}
    if tls:
        directory = os.path.join(os.path.expanduser("~"), ".postgresql")
        defaults = {keyword: os.path.join(directory, name) for keyword, name in FILES.items() if keyword not in passed}
        passed |= {keyword: path for keyword, path in defaults.items() if os.path.isfile(path)}
    return passed
