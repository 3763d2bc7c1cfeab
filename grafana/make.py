"""Makes the dashboards of Grafana from boards.py, and the table of names in docs/reference/metrics.md: ``python grafana/make.py``.

It needs pgherd to be importable; its environment's Python does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from boards import ALL
from panels import text

from pgherd.metrics.openmetrics import EVERYWHERE, Family, families
from pgherd.metrics.run_metrics import FAMILIES, LIVE_ONLY

HOME = Path(__file__).parent
PAGE = HOME.parent / "docs/reference/metrics.md"
_NAMES = re.compile(r"(<!-- names -->\n).*(<!-- end of names -->)", re.DOTALL)


def page(before: str) -> str:
    """The page's text with the tables of names made anew."""
    told = f"Of the run itself:\n\n{_table(FAMILIES)}\nOf what is sampled:\n\n{_table(families())}"
    return _NAMES.sub(lambda match: f"{match[1]}{told}{match[2]}", before)


def _table(found: Iterable[Family]) -> str:
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for family in found:
        labels = ", ".join(label for label in family.labels if label not in EVERYWHERE)
        live = " (live only)" if family in LIVE_ONLY else ""
        rows.append(f"| `{family.sample}` | {family.kind} | {labels} | {family.help}{live} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write everything."""
    for dashboard in ALL:
        file = HOME / f"{dashboard.name}.json"
        file.write_text(text(dashboard), encoding="utf-8")
        print(file)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
