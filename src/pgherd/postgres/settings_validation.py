"""Validation of settings by PostgreSQL before a deployment, without a running server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node
from pgherd.postgres import configuration
from pgherd.postgres.installations import Installation, user_for
from pgherd.postgres.instance import initdb

_MESSAGE = re.compile(r"(LOG|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT):  (.*)")
# Messages that PostgreSQL adds to an error, but that contain no information about the settings.
_NOISE = ("skipping missing configuration file", "contains errors", "database system is shut down")


def contexts(node: Node, installation: Installation) -> dict[str, str]:
    """Return the context (as in pg_settings) by setting, for ``settings.reload_or_restart``.

    Developer options are missing.
    """
    program = installation.tool("postgres")
    return parse_contexts(node.run(Command([program, "--describe-config"], user=user_for(program))).out)


def parse_contexts(described: str) -> dict[str, str]:
    """Parse names and contexts from the output of `postgres --describe-config`, lines of tab-separated fields.

    The default values in the output are not usable, because they are not initialized in this mode.
    """
    lines = (line.split("\t") for line in described.splitlines())
    return {fields[0]: fields[1] for fields in lines if len(fields) > 2}


def complaints(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> list[str]:
    """Return PostgreSQL's errors for these settings. The list is empty if a server would start with them.

    This detects unknown names, bad values, contradictions and missing libraries. It cannot detect insufficient memory.
    ``workdir`` is a directory of pgherd that ``account`` can enter. A small data directory is created in it (40 MB, 0.5 s)
    and reused by later calls. The caller removes it.
    """
    cluster = configured(node, installation, settings, account, workdir)
    # -C of a computed setting runs the startup until just before memory is allocated. It must be the first argument.
    postgres = node.run(Command([installation.tool("postgres"), "-C", "shared_memory_size", "-D", cluster], user=account))
    return [] if postgres.code == 0 else understand(postgres.err)


def configured(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> str:
    """Return a small data directory with these settings, for `postgres -C`. The arguments are as for ``complaints``."""
    cluster = os.path.join(workdir, f"validate-{installation.version}")
    if not node.exists(os.path.join(cluster, "PG_VERSION")):
        node.remove_tree(cluster)
        initdb(node, installation, cluster, account=account)
    node.write(os.path.join(cluster, "postgresql.conf"), configuration.write(settings).encode(), user=account)
    return cluster


def understood(node: Node, bin_: str, settings: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the values of ``names`` as PostgreSQL in ``bin_`` parses them, in its units and spelling.

    For example, shared_buffers of 1GB is 131072, and true is on. A name that is not in ``settings`` has its default. Names
    that PostgreSQL does not know are omitted. A setting of an extension is returned unparsed, because the extension is
    not loaded. No data directory is needed: -C prints the value before it reads one, for root too.
    """
    options = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
    values = {}
    for name in names:
        argv = [os.path.join(bin_, "postgres"), "-C", name, "-D", "/", "-c", "config_file=/dev/null", *options]
        postgres = node.run(Command(argv))
        if postgres.code == 0:
            values[name] = postgres.out.removesuffix("\n")
    return values


def no_tls(node: Node, installation: Installation, account: str | None, workdir: str) -> str:
    """Return PostgreSQL's error if the installation does not support TLS, or ''. ``workdir`` is as for ``complaints``."""
    cluster = configured(node, installation, {}, account, workdir)
    postgres = node.run(Command([installation.tool("postgres"), "-C", "ssl", "-D", cluster, "-c", "ssl=on"], user=account))
    return "" if postgres.code == 0 else "; ".join(understand(postgres.err))


def understand(log: str) -> list[str]:
    """Return the errors in a server's log, with their hints, and without positions in pgherd's file."""
    errors: list[str] = []
    for kind, message in _MESSAGE.findall(log):
        if any(noise in message for noise in _NOISE):
            continue
        text = re.sub(r' in file "[^"]*" line \d+', "", message)
        if kind in ("HINT", "DETAIL") and errors:
            errors[-1] += f" ({text})"
        else:
            errors.append(text)
    return errors or log.strip().splitlines()[-1:] or ["PostgreSQL exited without a message"]


def validate(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> None:
    """Require that PostgreSQL would start with these settings.

    Raises:
        UsageError: It would not. The message contains PostgreSQL's errors.
    """
    errors = complaints(node, installation, settings, account, workdir)
    if errors:
        raise UsageError(
            f"PostgreSQL {installation.version} does not accept these settings: {'; '.join(errors)}; "
            "correct --set, --settings-from or --pg-version"
        )
