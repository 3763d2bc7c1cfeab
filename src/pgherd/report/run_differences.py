"""What differs between runs beside what they measured: host facts, settings, options, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pgherd.model.run import RunRecord
from pgherd.model.units import format_bytes
from pgherd.report import formatting
from pgherd.report.formatting import MISSING, clean
from pgherd.report.html_model import CellText, Table

_HOST = (
    *("hostname", "cores", "logical_cpus", "physical_cores", "smt", "numa_nodes", "cpu_model", "virtualisation", "governor", "boost"),
    *("clock_source", "memory", "swap", "huge_pages", "transparent_huge_pages", "cgroup", "kernel", "os"),
)
_BYTES = {"memory", "swap", "container_memory"}
"""Compared as they are written: a few kilobytes more after another boot are no other machine."""


def differences(runs: Sequence[tuple[str, RunRecord]]) -> dict[str, Table]:
    """Kind → table of what is not the same in all runs, a column for each: host facts, settings, options, versions, and the user's
    files (by a hash of their contents) where a run has any.

    A table without rows: they are all the same.
    """
    kinds = [kind for kind in _KINDS if kind != "files" or any(record.inputs for _, record in runs)]
    return {kind: _differing(kind, runs) for kind in kinds}


def same_kinds(found: Mapping[str, Table]) -> str:
    """Which kinds are the same in all runs, and which are not, in one sentence."""
    alike = [kind for kind, table in found.items() if not table.rows]
    other = [kind for kind, table in found.items() if table.rows]
    parts = [f"{', '.join(kinds)} {verb}" for kinds, verb in ((alike, "are the same in all runs"), (other, "differ")) if kinds]
    return ("; ".join(parts) + ".").capitalize()


def names(table: Table) -> list[str]:
    """What differs, by name."""
    return [row[0].text for row in table.rows]


def _differing(kind: str, runs: Sequence[tuple[str, RunRecord]]) -> Table:
    facts = [dict(_KINDS[kind](record)) for _, record in runs]
    rows = []
    for name in sorted({name for one in facts for name in one}):
        values = [one.get(name, MISSING) for one in facts]
        if len(set(values)) > 1:
            # A setting's name is PostgreSQL's own, and a file's is the user's.
            rows.append((CellText(name if kind in ("settings", "files") else formatting.label(name)), *map(CellText, values)))
    return Table(kind, (kind, *(clean(name) for name, _ in runs)), tuple(rows))


def _host_facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    for name, facts in record.hosts.items():
        before = "" if len(record.hosts) == 1 else f"{clean(name)} "
        for field in _HOST:
            value = getattr(facts, field)
            text = format_bytes(value) if field in _BYTES else formatting.number(value) if isinstance(value, float) else value
            yield before + field, MISSING if value is None else clean(text)
    if record.resumed:  # the facts are those of the host on which it began
        yield "resumed", clean("; ".join(record.resumed))


def _settings(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield from ((clean(name), clean(value)) for name, value in record.settings.items())
    for variant, said in record.variant_settings.items():
        beside = sorted(set(said) - set(record.settings))
        yield from ((clean(f"{name} of {variant}"), clean(said[name])) for name in beside)


def _options(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Where files of the user's lie is no difference: each run has copies of its own, and ``_files`` has their contents."""
    own = f"/{record.run}/inputs/"
    for name, text in _flat({name: value for name, value in record.options.items() if name != "settings"}):
        if not name.endswith("init_data.directory"):
            yield name, text.partition(own)[2] or text


def _files(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield from ((clean(name), clean(digest)) for name, digest in record.inputs.items())


def _flat(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Options within options by dotted name; those of a list by the name that each has, else by its place. None is as good as absent."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            yield from _flat({str(one.get("name") or place): one for place, one in enumerate(value, 1)}, f"{prefix}{name}.")
        elif value is not None:
            yield clean(prefix + name), clean(format_bytes(value) if name in _BYTES and isinstance(value, int) else value)


def _versions(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "pgherd", clean(record.pgherd)
    yield "PostgreSQL", clean(", ".join(sorted(set(record.postgres.values()))))
    yield from ((clean(name), clean(version)) for name, version in record.tools.items())


_KINDS: Mapping[str, Callable[[RunRecord], Iterator[tuple[str, str]]]] = {
    "host facts": _host_facts,
    "settings": _settings,
    "options": _options,
    "versions": _versions,
    "files": _files,
}
