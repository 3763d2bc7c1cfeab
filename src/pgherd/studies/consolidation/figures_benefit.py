"""Measured benefit of a dedicated server, for the recommendations of ``pgherd advise``."""

from __future__ import annotations

from pgherd.model.run import RunRecord
from pgherd.report.measured_benefit import change_text


def benefits(record: RunRecord) -> list[tuple[str, str]]:
    """Return the effect of a dedicated container and server per database (scheme 3) over a shared server (scheme 1), undercommitted.

    Empty if the run's ratios are not relative to scheme 1.
    """
    if record.analysis is None:
        return []
    rows = [row for row in record.analysis.tables.get("consolidation", []) if not row.get("rate") and "trials" in row]
    if not rows or rows[0].get("scheme") != 1:
        return []
    vcpus = ""
    if getattr(rows[0].get("corrected"), "value", None) is not None:
        vcpus = ", each with dedicated vCPUs"
    texts = []
    for row in rows:
        ratio = row.get("ratio")
        if row.get("scheme") == 3 and getattr(ratio, "value", None) is not None:
            layouts = f"{rows[0].get('what')} → {row.get('what')} containers/servers/databases{vcpus}, buffers {row.get('buffers')} %"
            texts.append(("dedicated-server", f"{layouts}: {change_text(ratio, record)}"))
    return texts
