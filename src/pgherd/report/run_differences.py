"""Differences between runs apart from their results: host facts, settings, options, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.model.units import format_bytes
from pgherd.report import formatting
from pgherd.report.formatting import MISSING
from pgherd.report.html_model import CellText, Table

_HOST = (
    *("hostname", "cores", "logical_cpus", "physical_cores", "smt", "numa_nodes", "cpu_model", "virtualisation", "governor", "boost"),
    *("clock_source", "memory", "swap", "huge_pages", "transparent_huge_pages", "cgroup", "kernel", "os"),
)
_BYTES = {"memory", "host_memory", "swap", "container_memory"}
"""Compared as formatted text, because memory may differ by a few kilobytes between boots."""

_POSTGRESQL = "PostgreSQL"


def differences(runs: Sequence[tuple[str, RunRecord]]) -> dict[str, Table]:
    """Return kind → table of everything that differs, one column per run. A table without rows: no differences.

    Kinds: host facts, settings, options, versions, and the user's files (by a hash of their contents) if any.
    """
    kinds = [kind for kind in _KINDS if kind != "files" or any(record.inputs for _, record in runs)]
    return {kind: _differing(kind, runs) for kind in kinds}


def same_kinds(tables: Mapping[str, Table]) -> str:
    """Return one sentence: the kinds that are the same in all runs, and those that differ."""
    equal = [kind for kind, table in tables.items() if not table.rows]
    different = [kind for kind, table in tables.items() if table.rows]
    parts = [f"{', '.join(kinds)} {verb}" for kinds, verb in ((equal, "are the same in all runs"), (different, "differ")) if kinds]
    return ("; ".join(parts) + ".").capitalize()


def names(table: Table) -> list[str]:
    """Return the names of a table's rows."""
    return [row[0].text for row in table.rows]


def _differing(kind: str, runs: Sequence[tuple[str, RunRecord]]) -> Table:
    facts = [dict(_KINDS[kind](record)) for _, record in runs]
    rows = []
    for name in sorted({name for values in facts for name in values}):
        values = [of_run.get(name, MISSING) for of_run in facts]
        if name == _POSTGRESQL and not all("(" in value for value in values):  # some runs recorded no build
            values = [value.partition(" (")[0] for value in values]
        if len(set(values)) > 1:
            rows.append((CellText(_row_name(kind, name)), *map(CellText, values)))
    return Table(kind, (kind, *(clean(name) for name, _ in runs)), tuple(rows))


def _row_name(kind: str, name: str) -> str:
    """Return the name of a row. Names of settings and of the user's files stay unchanged. An option may be named like a column."""
    if kind in ("settings", "files"):
        return name
    return formatting.name_text(name) if kind == "options" else formatting.label(name)


def _host_facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    for name, facts in record.hosts.items():
        prefix = "" if len(record.hosts) == 1 else f"{clean(name)} "
        for field in _HOST:
            value = getattr(facts, field)
            text = format_bytes(value) if field in _BYTES else formatting.number(value) if isinstance(value, float) else value
            yield prefix + field, MISSING if value is None else clean(text)
    if record.resumed_on_changed_host:  # the facts are those of the host on which the run started
        yield "resumed", clean("; ".join(record.resumed_on_changed_host))


def _settings(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield from ((clean(name), clean(value)) for name, value in record.settings.items())
    for variant, settings in record.variant_settings.items():
        extra = sorted(set(settings) - set(record.settings))
        yield from ((clean(f"{name} of {variant}"), clean(settings[name])) for name in extra)


def _options(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield the options without locations of the user's files: each run has copies, and ``_files`` compares their contents."""
    inputs = f"/{record.run}/inputs/"
    for name, text in _flat({name: value for name, value in record.options.items() if name != "settings"}):
        if not name.endswith("init_data.directory"):
            yield name, text.partition(inputs)[2] or text


def _files(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield from ((clean(name), clean(digest)) for name, digest in record.inputs.items())


def _flat(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested options by dotted name, those of a list by their name or index. None counts as absent."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and value and all(isinstance(item, Mapping) for item in value):
            yield from _flat({str(item.get("name") or index): item for index, item in enumerate(value, 1)}, f"{prefix}{name}.")
        elif value is not None:
            yield clean(prefix + name), clean(format_bytes(value) if name in _BYTES and isinstance(value, int) else value)


def _versions(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "pgherd", clean(record.pgherd)
    yield _POSTGRESQL, clean(", ".join(sorted(set(record.postgres.values()))))
    yield from ((clean(name), clean(version)) for name, version in record.tools.items())


_KINDS: Mapping[str, Callable[[RunRecord], Iterator[tuple[str, str]]]] = {
    "host facts": _host_facts,
    "settings": _settings,
    "options": _options,
    "versions": _versions,
    "files": _files,
}
