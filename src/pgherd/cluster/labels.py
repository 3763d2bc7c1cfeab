"""Labels of hosts, by which containers are placed: from options of ``cluster start``, and from an agent's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

from pgherd.model.errors import UsageError

VARIABLE = "PGHERD_LABELS"
"""Environment variable with labels of an agent's host: ``KEY=VALUE,KEY=VALUE``."""

EVERYWHERE = "host"
"""Label that every host has: its name (``pgherd.study.shared_options.PIN``)."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]*")


def given(texts: Sequence[str], hosts: Collection[str]) -> dict[str, dict[str, str]]:
    """Return host → labels from texts ``HOST:KEY=VALUE``. Raises UsageError if one is invalid, or for an unknown host."""
    labels: dict[str, dict[str, str]] = {}
    for label in texts:
        left, _, value = label.partition("=")
        host, _, key = left.rpartition(":")
        if not (host and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            raise UsageError(
                f"--label {label}: write HOST:KEY=VALUE, such as db1:disk=nvme; KEY is of ASCII letters, digits, '_', '.' and '-', "
                "VALUE of these, '/' and ':', and both begin with a letter, a digit or '_'"
            )
        if key == EVERYWHERE:
            raise UsageError(f"--label {label}: the label {EVERYWHERE} is reserved for the host's name; choose another key")
        if host not in hosts:
            raise UsageError(f"--label {label}: {host} is not one of {', '.join(hosts)}")
        if labels.setdefault(host, {}).setdefault(key, value) != value:
            raise UsageError(f"--label {label}: {host} has {key}={labels[host][key]}; a label has one value")
    return labels


def local_labels() -> dict[str, str]:
    """Return the labels of the host on which this runs, from its environment."""
    pairs = [part.partition("=") for part in os.environ.get(VARIABLE, "").split(",") if "=" in part]
    return {key.strip(): value.strip() for key, _, value in pairs}


def set_local_labels(labels: Mapping[str, str]) -> None:
    """Add labels to those that ``own`` returns. They replace those of the same key."""
    os.environ[VARIABLE] = text({**local_labels(), **labels})


def text(labels: Mapping[str, str]) -> str:
    """Return ``KEY=VALUE,KEY=VALUE``."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
