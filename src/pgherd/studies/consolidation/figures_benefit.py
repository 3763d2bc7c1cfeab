"""The measured benefit of a dedicated server, for the recommendations."""

from __future__ import annotations

from pgherd.model.run import RunRecord
from pgherd.report.measured_benefit import change_text


def benefits(record: RunRecord) -> list[tuple[str, str]]:
    """What a container and a server for each database (scheme 3) were worth against one for all (scheme 1), where memory was enough;
    nothing where the run's ratios are against another scheme."""
    if record.analysis is None:
        return []
    rows = [row for row in record.analysis.tables.get("consolidation", []) if not row.get("rate") and "trials" in row]
    if not rows or rows[0].get("scheme") != 1:
        return []
    more = ""
    if getattr(rows[0].get("corrected"), "value", None) is not None:
        more = ", and with vCPUs of its own each"
    told = []
    for row in rows:
        ratio = row.get("ratio")
        if row.get("scheme") == 3 and getattr(ratio, "value", None) is not None:
            what = f"{rows[0].get('what')} → {row.get('what')} containers/servers/databases{more}, buffers {row.get('buffers')} %"
            told.append(("dedicated-server", f"{what}: {change_text(ratio, record)}"))
    return told
