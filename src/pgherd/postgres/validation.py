"""What PostgreSQL itself says of settings, asked before anything is deployed and without a running server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node
from pgherd.postgres import configuration, initdb
from pgherd.postgres.installations import Installation

_SAID = re.compile(r"(LOG|WARNING|ERROR|FATAL|PANIC|DETAIL|HINT):  (.*)")
# What PostgreSQL adds to a complaint although it says nothing about the settings.
_NOISE = ("skipping missing configuration file", "contains errors", "database system is shut down")


def contexts(node: Node, installation: Installation) -> dict[str, str]:
    """Setting → context (as in pg_settings), for ``settings.reload_or_restart``; developers' options are missing."""
    return parse_contexts(node.run(Command([installation.tool("postgres"), "--describe-config"])).out)


def parse_contexts(described: str) -> dict[str, str]:
    """Names and contexts from `postgres --describe-config`: tab-separated lines that begin with them.

    Its default values are of no use: it prints variables that are not initialised in that mode.
    """
    lines = (line.split("\t") for line in described.splitlines())
    return {fields[0]: fields[1] for fields in lines if len(fields) > 2}


def complaints(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> list[str]:
    """What PostgreSQL has against these settings, in its own words; nothing if it would start with them.

    ``workdir`` is a directory of ours that ``account`` can enter; a small cluster is made in it (40 MB, half a second)
    and kept for the next call, and the caller removes it. Unknown names, bad values, contradictions and missing
    libraries are found; whether memory suffices shows only at the start.
    """
    cluster = configured(node, installation, settings, account, workdir)
    # -C of a computed setting goes all the way to just before memory is allocated; it must be the first argument.
    done = node.run(Command([installation.tool("postgres"), "-C", "shared_memory_size", "-D", cluster], user=account))
    return [] if done.code == 0 else understand(done.err)


def configured(node: Node, installation: Installation, settings: Mapping[str, str], account: str | None, workdir: str) -> str:
    """The directory of a small stopped cluster with these settings, which can be asked what follows from them; see ``complaints``."""
    cluster = os.path.join(workdir, f"validate-{installation.version}")
    if not node.exists(os.path.join(cluster, "PG_VERSION")):
        node.remove_tree(cluster)
        initdb.initdb(node, installation, cluster, account=account)
    node.write(os.path.join(cluster, "postgresql.conf"), configuration.write(settings).encode())
    return cluster


def understood(node: Node, bin_: str, settings: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What the PostgreSQL in ``bin_`` makes of settings, in its own units and spelling: 1GB of shared_buffers is 131072, true is on.

    Of ``names`` that are not set it is the default; those that it does not know are left out. Of an extension's, which it would know once
    the extension is loaded, it is the text as it was given. No cluster is needed: -C answers before it looks for one, to root too.
    """
    given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    found = {}
    for name in names:
        asked = [os.path.join(bin_, "postgres"), "-C", name, "-D", "/", "-c", "config_file=/dev/null", *given]
        done = node.run(Command(asked))
        if done.code == 0:
            found[name] = done.out.removesuffix("\n")
    return found


def no_tls(node: Node, installation: Installation, account: str | None, workdir: str) -> str:
    """Why a server of this installation cannot have TLS, in PostgreSQL's own words; '' where it can. ``workdir`` as in ``complaints``."""
    cluster = configured(node, installation, {}, account, workdir)
    done = node.run(Command([installation.tool("postgres"), "-C", "ssl", "-D", cluster, "-c", "ssl=on"], user=account))
    return "" if done.code == 0 else "; ".join(understand(done.err))


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
