"""The tables of docs/statistics.md, from the result of false_positives.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "statistics.md"


def with_results(text: str, document: dict[str, Any]) -> str:
    """docs/statistics.md with its tables made anew from the result; raises ValueError where it has no place for one."""
    return filled(text, tables(document), "docs/statistics.md")


def filled(text: str, places: Mapping[str, Sequence[str]], page: str) -> str:
    """A page with these lines at their places, by name; raises ValueError where it has no place for some."""
    for name, lines in places.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not marks.search(text):
            raise ValueError(f"{page} has no '<!-- {name} -->' … '<!-- end of {name} -->'")
        block = "\n".join(lines)
        text = marks.sub(lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text)
    return text


def tables(document: dict[str, Any]) -> dict[str, list[str]]:
    """The result in Markdown tables, by the name of their place."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in document["raw"]:
        parts.setdefault(row["part"], []).append(row)
    figures = {figure["name"]: figure for figure in document["figures"]}
    lengths = sorted({row["most"] for row in parts["equal"]})

    def rate(row: dict[str, Any], key: str) -> str:
        return f"{100 * row[key] / row['studies']:.1f} %"

    by_kind = [["noise", *(f"at most {most} blocks" for most in lengths), "worst of all rules", "its 99 % bound"]]
    for kind in dict.fromkeys(row["noise"] for row in parts["equal"]):
        rows = [row for row in parts["equal"] if row["noise"] == kind and row["stop"] == "at a verdict"]
        worst = figures[f"false positives, noise {kind}"]
        by_kind.append([kind, *(rate(row, "false") for row in rows), f"{worst['value']:.1f} %", f"{worst['high']:.1f} %"])

    powers = [["noise of a trial", "kind", *(f"at most {most}: found, blocks used, estimate if found" for most in lengths)]]
    for kind, noise in dict.fromkeys((row["noise"], row["noise of a trial"]) for row in parts["power"]):
        rows = [row for row in parts["power"] if (row["noise"], row["noise of a trial"]) == (kind, noise)]
        cells = [f"{rate(row, 'found')}, {row['mean blocks']:.0f}, {100 * row['median estimate of those found']:+.1f} %" for row in rows]
        powers.append(["as measured" if noise is None else f"{100 * noise:g} %", kind, *cells])

    by_rule = [["rule", *(f"at most {most}: false, found, blocks used" for most in lengths)]]
    for rule in dict.fromkeys(row["rule"] for row in parts["rules"]):
        rows = [row for row in parts["rules"] if row["rule"] == rule]
        by_rule.append([rule, *(f"{rate(row, 'false')}, {rate(row, 'found')}, {row['mean blocks']:.0f}" for row in rows)])

    both = [["noise", *(f"at most {most}: false with one, with both; found with one, with both" for most in lengths)]]
    for kind in ("independent", "real", "stalls"):
        rows = [row for row in parts["both_baselines"] if row["noise"] == kind]
        cells = ["; ".join(f"{rate(row, f'{what}, one')}, {rate(row, f'{what}, both')}" for what in ("false", "found")) for row in rows]
        both.append([kind, *cells])

    rest = [["what", "share", "99 % bounds", "studies", ""]]
    for name, figure in figures.items():
        if name.startswith(("interval", "equivalent", "any of", "settled", "false positives side", "false positives in turn", "said that")):
            share = [f"{figure[key]:.1f}" for key in ("value", "low", "high")]
            rest.append([name, f"{share[0]} %", f"{share[1]} to {share[2]} %", str(figure["n"]), figure["note"]])
    made = {"false positives": by_kind, "power": powers, "rules": by_rule, "both baselines": both, "other figures": rest}
    return {name: markdown(rows) for name, rows in made.items()}


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table, its first row the head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]
