"""What several variants' preparations have in common, and what each says alone: for one plan of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pgherd.postgres.settings import Row


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


def changes(said: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Every change of the host once."""
    return tuple(dict.fromkeys(change for some in said for change in some))
