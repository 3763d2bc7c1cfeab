"""Writes the generated blocks of the reference pages from the code: ``python docs/generate.py [--check]``.

``--check`` changes no page: it lists the pages whose block is out of date, and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from pgherd.metrics.openmetrics import COMMON_LABELS, Family, families
from pgherd.metrics.run_metrics import FAMILIES, LIVE_ONLY
from pgherd.model.analysis import Analysis, Check, Finding, Thresholds
from pgherd.model.base import Model
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.study.comparison.request import BlocksRequest
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.option import Declared, declared
from pgherd.study.shared_options import ClusterRequest, MeasurementRequest, SampleRequest
from pgherd.study.study import studies

HOME = Path(__file__).parent / "reference"
SHARED = {
    "comparisons, beside those of databases": BlocksRequest,
    "studies of databases": DatabaseRequest,
    "studies without databases": MeasurementRequest,
    "compression and database-size": SampleRequest,
    "studies that run on a cluster": ClusterRequest,
}
MODELS = (RunRecord, Analysis, Finding, Trial, TrialResult, Check)


def options() -> str:
    """The options that studies share, and those of each study that are its own or differ."""
    shown: dict[type[Model], dict[str, str]] = {}
    lines: list[str] = []
    for title, model in reversed(SHARED.items()):
        inherited = {row for other in shown for row in shown[other].values() if issubclass(model, other)}
        shown[model] = {one.name: _option(one) for one in declared(model)}
        rows = [row for row in shown[model].values() if row not in inherited]
        lines += [f"### Options of {title}", "", *_table(("option", "meaning", "default"), rows), ""]
    for study in studies().values():
        if not study.examples:
            continue
        model = study.request_model
        shared = {row for other, rows in shown.items() if issubclass(model, other) for row in rows.values()}
        rows = [row for one in declared(model) if (row := _option(one)) not in shared]
        left_out = ", ".join(f"`--{name.replace('_', '-')}`" for name in sorted(getattr(model, "LEFT_OUT", {})))
        lines += [f"### {study.name}", "", *_table(("option", "meaning", "default"), rows), ""]
        lines += [f"Not taken: {left_out}.", ""] if left_out else []
    return "\n".join(lines)


def _option(one: Declared) -> str:
    name = one.option.positional or f"{one.flag} {one.option.metavar}".strip()
    return f"|`{name.replace('|', chr(92) + '|')}`|{one.option.help}|{one.default_text}|"


def checks() -> str:
    """The thresholds."""
    rows = [f"|`{name}`|{field.default:g}|{field.description}|" for name, field in Thresholds.model_fields.items()]
    return "\n".join([*_table(("threshold", "default", "meaning"), rows), ""])


def metrics() -> str:
    """The names of all metrics."""
    return f"Of the run:\n\n{_families(FAMILIES)}\nOf what is sampled:\n\n{_families(families())}"


def _families(found: Iterable[Family]) -> str:
    rows = []
    for family in found:
        labels = ", ".join(label for label in family.labels if label not in COMMON_LABELS)
        rows.append(f"|`{family.sample}`|{family.kind}|{labels}{' (live only)' if family in LIVE_ONLY else ''}|")
    return "\n".join([*_table(("name", "type", "labels"), rows), ""])


def json() -> str:
    """The fields of the stored models."""
    lines = []
    for model in MODELS:
        fields = ", ".join(f"`{field.alias or name}`" for name, field in model.model_fields.items())
        lines += [f"`{model.__name__}`: {fields}", ""]
    return "\n".join(lines)


def _table(heads: tuple[str, ...], rows: list[str]) -> list[str]:
    return ["|" + "|".join(heads) + "|", "|" + "---|" * len(heads), *rows]


PAGES = {"cli.md": ("options", options), "checks.md": ("checks", checks), "metrics.md": ("metrics", metrics), "json.md": ("json", json)}


def page(name: str) -> str:
    """The text of a page with its block made again."""
    block, make = PAGES[name]
    text = (HOME / name).read_text(encoding="utf-8")
    made = f"<!-- generated: {block} -->\n{make().rstrip()}\n<!-- end -->"
    return re.sub(rf"<!-- generated: {block} -->\n.*?<!-- end -->", lambda _: made, text, flags=re.DOTALL)


def main() -> int:
    """Write all pages, or check them."""
    stale = [name for name in PAGES if page(name) != (HOME / name).read_text(encoding="utf-8")]
    for name in stale:
        if "--check" in sys.argv[1:]:
            print(f"{name} is out of date; run python docs/generate.py")
        else:
            (HOME / name).write_text(page(name), encoding="utf-8")
            print(name)
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
