"""A server that is also reached from outside the machine it runs on: TCP with scram-sha-256 and a generated password.

The password is in a password file of libpq's, which only its owner can read, and nowhere else: not in a command line, an environment, a
conninfo (which is stored with samples) or the server's log. The server gets the verifier alone.
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
"""PostgreSQL's own default (scram_iterations); a generated password of 192 bits gains nothing from more."""

HBA = "local all all trust\nhost all all 0.0.0.0/0 scram-sha-256\nhost all all ::/0 scram-sha-256\n"
"""pg_hba.conf: the private socket as ever (see ``initdb.arguments``), everybody else by password."""


@dataclass(frozen=True)
class TcpAccess:
    """Where clients outside find the server (``host``, ``port``: of the forwarded port, if it is one), the superuser's password, the file
    that holds it (``write_password_file``), and the addresses on which the server itself listens, on its own port."""

    host: str
    port: int
    password_file: str
    password: str = field(repr=False)
    listen: str = "*"


TLS_HBA = HBA.replace("host ", "hostssl ")
"""The same for a server that is reached over TLS alone."""


@dataclass(frozen=True)
class Opening:
    """A server that clients on another host reach too, at ``address`` on the server's own port, over TLS, by the superuser's password.
    ``pem`` is the file of its certificate and key, which belongs to its account."""

    address: str
    pem: str
    password: str = field(repr=False)

    def settings(self) -> dict[str, str]:
        """What the server needs for it."""
        return {
            "listen_addresses": self.address,
            "ssl": "on",
            "ssl_cert_file": self.pem,
            "ssl_key_file": self.pem,
            "ssl_min_protocol_version": "TLSv1.3",
        }


def generate() -> str:
    """A password of 192 random bits, in letters, digits, - and _."""
    return secrets.token_urlsafe(24)


def verifier(password: str, salt: bytes | None = None, iterations: int = _ITERATIONS) -> str:
    """What the server stores for an ASCII password: ``SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER``.

    Keys: RFC 5802, section 3, with SHA-256 (RFC 7677); layout: PostgreSQL's documentation of pg_authid.rolpassword.
    """
    salt = secrets.token_bytes(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${iterations}:{shown[0]}${shown[1]}:{shown[2]}"


def set_password(user: str, password: str) -> str:
    """The statements that give a role the verifier, also on a server whose transactions are read-only by default."""
    from psycopg import sql

    statements = sql.SQL("SET default_transaction_read_only = off;\nALTER ROLE {} PASSWORD {};\n")
    return statements.format(sql.Identifier(user), sql.Literal(verifier(password))).as_string(None)


def write_password_file(path: str, entries: Sequence[tuple[TcpAccess, str]], account: str | None = None) -> None:
    """Write libpq's password file for these servers and roles; ``account`` becomes its owner, and nobody else can read it.

    Raises:
        OSError: it cannot be written.
        KeyError: there is no such account.
    """
    owner = None if account is None else pwd.getpwnam(account)
    lines = [":".join(map(_escaped, (access.host, str(access.port), "*", user, access.password))) for access, user in entries]
    temporary = f"{path}.new"
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(number, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            if owner is not None:
                os.fchown(number, owner.pw_uid, owner.pw_gid)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _escaped(text: str) -> str:
    """A field as libpq reads it: colons and backslashes after a backslash. '*' stands for anything, alone."""
    return text.replace("\\", "\\\\").replace(":", "\\:")
