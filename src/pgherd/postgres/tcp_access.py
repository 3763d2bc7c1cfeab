"""Access to a server by TCP with scram-sha-256 and a generated password.

The password is stored only in a libpq password file that its owner can read. It appears in no command line, environment,
conninfo (which is stored with samples) or server log. The server receives only the verifier.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pwd
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

_ITERATIONS = 4096
"""PostgreSQL's default (scram_iterations). More do not make a random password of 192 bits safer."""

HBA = "local all all trust\nhost all all 0.0.0.0/0 scram-sha-256\nhost all all ::/0 scram-sha-256\n"
"""pg_hba.conf: trust on the private socket (see ``instance.initdb_arguments``), a password for other connections."""


@dataclass(frozen=True)
class TcpAccess:
    """TCP address of a server, for clients outside of its machine, with the superuser's password.

    ``host`` and ``port`` are those of the port forwarder if there is one. ``password_file`` is written by
    ``write_password_file``. ``listen`` is the server's listen_addresses.
    """

    host: str
    port: int
    password_file: str
    password: str = field(repr=False)
    listen: str = "*"


TLS_HBA = HBA.replace("host ", "hostssl ")
"""pg_hba.conf of a server that accepts only TLS connections."""


@dataclass(frozen=True)
class TcpListener:
    """TLS listener of a server at ``address``, for clients on other hosts that use the superuser's password.

    ``pem`` is the file of the certificate and key, owned by the server's user.
    """

    address: str
    pem: str
    password: str = field(repr=False)

    def settings(self) -> dict[str, str]:
        """Return the settings of the listener."""
        return {
            "listen_addresses": self.address,
            "ssl": "on",
            "ssl_cert_file": self.pem,
            "ssl_key_file": self.pem,
            "ssl_min_protocol_version": "TLSv1.3",
        }


def generate() -> str:
    """Generate a password of 192 random bits, in letters, digits, - and _."""
    return secrets.token_urlsafe(24)


def verifier(password: str, salt: bytes | None = None, iterations: int = _ITERATIONS) -> str:
    """Return the SCRAM verifier of an ASCII password: ``SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER``.

    The keys follow RFC 5802, section 3, with SHA-256 (RFC 7677). The format is that of pg_authid.rolpassword in
    PostgreSQL's documentation.
    """
    salt = secrets.token_bytes(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def set_password(user: str, password: str) -> str:
    """Return the statements that set the verifier of a role, even if transactions are read-only by default."""
    from psycopg import sql

    statements = sql.SQL("SET default_transaction_read_only = off;\nALTER ROLE {} PASSWORD {};\n")
    return statements.format(sql.Identifier(user), sql.Literal(verifier(password))).as_string(None)


def write_password_file(path: str, entries: Sequence[tuple[TcpAccess, str]], account: str | None = None) -> None:
    """Write libpq's password file for these servers and roles. Only its owner, ``account``, can read it.

    Raises:
        OSError: The file cannot be written.
        KeyError: The account does not exist.
    """
    owner = None if account is None else pwd.getpwnam(account)
    lines = [":".join(map(_escaped, (access.host, str(access.port), "*", user, access.password))) for access, user in entries]
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            if owner is not None:
                os.fchown(descriptor, owner.pw_uid, owner.pw_gid)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _escaped(text: str) -> str:
    """Escape colons and backslashes for libpq. A field that is only '*' matches any value."""
    return text.replace("\\", "\\\\").replace(":", "\\:")
