"""Labels of hosts, by which containers are placed: what ``cluster start`` says of them, and how an agent knows its own."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

from pgherd.model.errors import UsageError

VARIABLE = "PGHERD_LABELS"
"""Environment variable of an agent that gives its host labels: ``KEY=VALUE,KEY=VALUE``."""

EVERYWHERE = "host"
"""The label that every host has: its name (``pgherd.study.cluster_options.PIN``)."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]*")


def given(words: Sequence[str], hosts: Collection[str]) -> dict[str, dict[str, str]]:
    """Host → its labels, of ``HOST:KEY=VALUE`` each; raises UsageError for what is none, or of none of these hosts."""
    found: dict[str, dict[str, str]] = {}
    for word in words:
        left, _, value = word.partition("=")
        host, _, key = left.rpartition(":")
        if not (host and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            raise UsageError(
                f"--label {word}: write HOST:KEY=VALUE, such as db1:disk=nvme; KEY is of ASCII letters, digits, '_', '.' and '-', "
                "VALUE of these, '/' and ':', and both begin with a letter, a digit or '_'"
            )
        if key == EVERYWHERE:
            raise UsageError(f"--label {word}: every host has its name as the label {EVERYWHERE}; choose another key")
        if host not in hosts:
            raise UsageError(f"--label {word}: {host} is not one of {', '.join(hosts)}")
        if found.setdefault(host, {}).setdefault(key, value) != value:
            raise UsageError(f"--label {word}: {host} has {key}={found[host][key]}; a label has one value")
    return found


def own() -> dict[str, str]:
    """Those of the host on which this runs, as its environment says."""
    pairs = [part.partition("=") for part in os.environ.get(VARIABLE, "").split(",") if "=" in part]
    return {key.strip(): value.strip() for key, _, value in pairs}


def know(labels: Mapping[str, str]) -> None:
    """Have ``own`` tell these, too; where both say something of a key these count."""
    os.environ[VARIABLE] = text({**own(), **labels})


def text(labels: Mapping[str, str]) -> str:
    """``KEY=VALUE,KEY=VALUE``."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
