"""What PostgreSQL itself says of settings, asked before anything is deployed and without a running server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node
from pgherd.postgres import configuration, initdb
from pgherd.postgres.installations import Installation

_SAID = re.compile(r"(LOG|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT):  (.*)")
# What PostgreSQL adds to a complaint although it says nothing about the settings.
_NOISE = ("skipping missing configuration file", "contains errors", "database system is shut down")


@dataclass(frozen=True)
class Parameter:
    """A setting of one PostgreSQL version: its context (as in pg_settings) and built-in default in its base unit."""

    context: str
    default: str


def parameters(node: Node, installation: Installation) -> dict[str, Parameter]:
    """All settings that can stand in a postgresql.conf, except developers' ones, by `postgres --describe-config`."""
    done = node.run(Command([installation.tool("postgres"), "--describe-config"]))
    return parse_describe_config(done.out)


def parse_describe_config(text: str) -> dict[str, Parameter]:
    """Read the tab-separated lines: name, context, group, type, default, least, most, descriptions."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) >= 5:
            default = {"TRUE": "on", "FALSE": "off"}.get(fields[4], fields[4]) if fields[3] == "BOOLEAN" else fields[4]
            found[fields[0]] = Parameter(context=fields[1], default=default)
    return found


def contexts(node: Node, installation: Installation) -> dict[str, str]:
    """Setting → context, for ``settings.reload_or_restart``."""
    return {name: parameter.context for name, parameter in parameters(node, installation).items()}


def complaints(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> list[str]:
    """What PostgreSQL has against these settings, in its own words; nothing if it would start with them.

    ``workdir`` is a directory in which ``account`` can make a small cluster (40 MB, half a second, kept for the next
    call; the caller removes it). Unknown names, bad values, contradictions and missing libraries are found; whether
    memory suffices shows only at the start.
    """
    cluster = os.path.join(workdir, f"validate-{installation.version}")
    if not node.exists(os.path.join(cluster, "PG_VERSION")):
        node.remove_tree(cluster)
        initdb.initdb(node, installation, cluster, account=account)
    node.write(os.path.join(cluster, "postgresql.conf"), configuration.write(settings).encode())
    # -C of a computed setting goes all the way to just before memory is allocated; it must be the first argument.
    done = node.run(Command([installation.tool("postgres"), "-C", "shared_memory_size", "-D", cluster], user=account))
    return [] if done.code == 0 else understand(done.err)


def understand(log: str) -> list[str]:
    """The complaints in a server's log text, hints appended to what they belong to, places in our file left out."""
    found: list[str] = []
    for kind, said in _SAID.findall(log):
        if any(noise in said for noise in _NOISE):
            continue
        words = re.sub(r' in file "[^"]*" line \d+', "", said)
        if kind in ("HINT", "DETAIL") and found:
            found[-1] += f" ({words})"
        else:
            found.append(words)
    return found or log.strip().splitlines()[-1:] or ["PostgreSQL ended without a word"]


def validate(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> None:
    """Insist that PostgreSQL would start with these settings.

    Raises:
        UsageError: it would not; the message holds PostgreSQL's own words.
    """
    found = complaints(node, installation, settings, account, workdir)
    if found:
        raise UsageError(
            f"PostgreSQL {installation.version} does not accept these settings: {'; '.join(found)}; correct --set, --like or --pg-version"
        )
