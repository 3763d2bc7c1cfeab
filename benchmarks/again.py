"""Figures of the committed results by the formulas of today: ``python benchmarks/again.py`` makes them from ``raw``, without a measurement.

It writes those that differ, and the pages. Of some results ``raw`` is not enough. They keep their figures until they are measured again.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from outcome import RESULTS, document_text, write
from results_page import SCRIPTS, write_pages

NOT_IN_RAW = {
    "false_positives": "simulations make figures and raw at once",
    "isolation": "ratios are findings of the study's runs",
    "long_check": "it needs the files of all tests of its commit",
    "tenants": "no schedule lag is known in any phase",
}
"""Benchmark → why its figures cannot be made again."""
FURTHER: dict[str, Callable[[Mapping[str, Any]], Sequence[Any]]] = {
    "coverage": lambda document: [document["quick"]],
    "coverage_models": lambda document: [document["quick"]],
    "known_truth": lambda document: [importlib.import_module("known_truth").TRIES],
    "measuring": lambda document: [document["quick"]],
    "metrics_cost": lambda document: [document["settings"]["every"]],
    "orders": lambda document: [document["quick"]],
    "presence": lambda document: [document["settings"]["slice seconds"]],
    "provision": lambda document: [document["settings"]["databases"]],
    "repeated": lambda document: [document["quick"]],
    "ui": lambda document: [document["settings"][name] for name in ("runs", "databases in the largest trial")],
}
"""Benchmark → what its figures() needs besides ``raw``."""
CLOSE = 1e-3
"""Relative difference of numbers that rounding of ``raw`` may make."""


def figures_again(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the figures from ``raw``; None if it is not enough."""
    name = document["benchmark"]
    if name in NOT_IN_RAW:
        return None
    module = importlib.import_module(SCRIPTS.get(name, name))
    made = module.figures(document["raw"], *FURTHER.get(name, lambda document: [])(document))
    return [asdict(figure) for figure in made]


def changes(document: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what differs from the figures that a document has, a line for each figure."""
    stored = document["figures"]
    if [figure["name"] for figure in stored] != [figure["name"] for figure in made]:
        before, after = ({figure["name"]: figure for figure in those} for those in (stored, made))
        lines = [f"gone: {_words(figure)}" for name, figure in before.items() if name not in after]
        lines += [f"new: {_words(figure)}" for name, figure in after.items() if name not in before]
        both = [(before[name], after[name]) for name in before if name in after]
        return [*(lines or ["another order"]), *_differing(both)]
    return _differing(zip(stored, made, strict=True))


def _differing(pairs: Any) -> list[str]:
    return [f"{_words(old)} → {_words(new)}" for old, new in pairs if not all(_same(old.get(key), value) for key, value in new.items())]


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, int | float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=CLOSE, abs_tol=1e-9)
    return bool(old == new)


def _words(figure: Mapping[str, Any]) -> str:
    ends = "" if None in (figure["low"], figure["high"]) else f" ({figure['low']:.4g} to {figure['high']:.4g})"
    goal = f", {figure['goal']}: {figure['met']}" if figure["goal"] else ""
    return f"{figure['name']}: {figure['value']:.4g}{ends}, n={figure['n']}{goal}"


def main() -> None:
    """Print what differs, and write it."""
    for file in sorted(RESULTS.glob("*.json")):
        document = json.loads(file.read_text())
        made = figures_again(document)
        if made is None:
            print(f"{file.stem}: kept, {NOT_IN_RAW[file.stem]}")
            continue
        lines = changes(document, made)
        if lines:
            print(f"{file.stem}:", *lines, sep="\n  ")
            raw = document.pop("raw")
            write(file, document_text({**document, "figures": made}, raw))
    write_pages()


if __name__ == "__main__":
    main()
