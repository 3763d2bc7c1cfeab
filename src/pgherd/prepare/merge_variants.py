"""What several variants' preparations have in common, and what each says alone: for one plan of all of them, and one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pgherd.model.base import Model
from pgherd.model.deployment import GuestMemory, Volume
from pgherd.model.errors import UsageError
from pgherd.model.run import Surroundings, Swap
from pgherd.model.units import format_bytes
from pgherd.postgres.settings import Row
from pgherd.prepare.server_volumes import Holding
from pgherd.study.complete_options import StudyOptions
from pgherd.study.database_options import DatabaseOptions

Options = TypeVar("Options", bound=Model)

ONE = {
    "run_as": "the account that servers run as",
    "platform": "the parts of the platform that are accounted for",
    "trace": "whether block requests are traced",
    "swap": "the run's own swap",
}
"""Surroundings of which a run has one, whatever its variants say, in words."""


def choices(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every sentence once, by variant; those that do not go for all with the names of those that they go for."""
    holders: dict[str, list[str]] = {}
    for name, sentences in said.items():
        for sentence in dict.fromkeys(sentences):
            holders.setdefault(sentence, []).append(name)
    return tuple(sentence if len(names) == len(said) else f"{', '.join(names)}: {sentence}" for sentence, names in holders.items())


def settings(said: Mapping[str, Sequence[Row]]) -> tuple[Row, ...]:
    """Every setting once, by variant; where they differ, each one's value under its name, those first."""
    rows = {name: {row.name: row for row in own} for name, own in said.items()}
    alike, differ = [], []
    for setting in dict.fromkeys(name for found in rows.values() for name in found):
        found = [of.get(setting) for of in rows.values()]
        first = next(row for row in found if row is not None)
        if all(row is not None and row.value == first.value for row in found):
            alike.append(first)
        else:
            values = "; ".join(f"{name}: {row.value if row else 'the default'}" for name, row in zip(rows, found, strict=True))
            differ.append(Row(setting, values, first.default, "differs between the variants"))
    return (*differ, *alike)


def logged_alike(of: Mapping[str, Options]) -> dict[str, Options]:
    """All variants' options; those with the same scripts at the same rate have the smallest share of transactions logged that one of
    them asks for: it follows from how long a transaction took when it was tried, and would cost them unequally."""
    same: dict[object, list[float]] = {}
    for one in of.values():
        for load in _loads(one):
            same.setdefault((load.scripts, load.rate), []).append(load.sampling)
    return {name: _logged(one, same) for name, one in of.items()}


def _loads(options: Model) -> list[DatabaseOptions]:
    """The options that describe how databases are loaded: these, or those of all variants."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return [load for variant in variants.values() for load in _loads(variant)]
    return [options] if isinstance(options, DatabaseOptions) else []


def _logged(options: Options, same: Mapping[object, Sequence[float]]) -> Options:
    """The options with the smallest share of logged transactions that belongs to their load."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return options.with_variant_options({name: _logged(variant, same) for name, variant in variants.items()})
    if isinstance(options, DatabaseOptions):
        return options.model_copy(update={"sampling": min(same[options.scripts, options.rate])})
    return options


def surroundings(of: Mapping[str, Surroundings]) -> Surroundings:
    """What a run of all variants needs of its host, the first being the baseline: the largest budget that one of them asks for.

    Raises:
        UsageError: they differ in what a run has only once, and all but the first would be measured as they did not ask.
    """
    first, base = next(iter(of.items()))
    for name, one in of.items():
        for field, words in ONE.items():
            if getattr(one, field) != getattr(base, field):
                said = ", ".join(f"{_words(getattr(own, field))} in '{arm}'" for arm, own in ((first, base), (name, one)))
                raise UsageError(f"{words} is the same for a whole run, but it is {said}; say the same of all, or make a run of each")
    runtimes = [one.runtime for one in of.values()]
    return base.model_copy(
        update={
            "runtime": "cgroup" if "cgroup" in runtimes else base.runtime,  # it can refuse a budget, and is opened first
            "cores": max(one.cores for one in of.values()),
            "memory": max(one.memory for one in of.values()),
            "guest_memory": _guest_memory(of),
        }
    )


def _guest_memory(of: Mapping[str, Surroundings]) -> GuestMemory | None:
    """How the guests of all variants share memory; None where no variant has any. Raises UsageError where they would by different
    policies."""
    known = {name: one.guest_memory for name, one in of.items() if one.guest_memory is not None}
    if not known:
        return None
    first = next(iter(known))
    for name, one in known.items():
        if (one.policy, one.tax) != (known[first].policy, known[first].tax):
            said = [f"guest_memory {own.policy} (guest_tax {own.tax:g}) in '{arm}'" for arm, own in ((first, known[first]), (name, one))]
            raise UsageError(f"{' and '.join(said)}: all guests of a run share memory by one policy; compare policies by runs of their own")
    return known[first]


def _words(value: object) -> str:
    """A part of the surroundings as a user would say it."""
    match value:
        case Swap():
            return "none" if value.kind == "none" else f"{value.kind} of {format_bytes(value.size)}"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ", ".join(map(str, value)) or "none"
    return "as the host has it" if value is None else str(value)


def holds(said: Iterable[Sequence[Holding]]) -> tuple[Holding, ...]:
    """What lies on volumes, once each: as much of it as the variant that puts most there."""
    found: dict[tuple[Volume, str], Holding] = {}
    for one in (one for some in said for one in some):
        key = one.volume, one.words
        found[key] = max(found.get(key, one), one, key=lambda held: held.bytes)
    return tuple(found.values())


def changes(said: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Every change of the host once."""
    return tuple(dict.fromkeys(change for some in said for change in some))
