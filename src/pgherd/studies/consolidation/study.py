"""Definition of the consolidation study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgherd.study import wait_event_columns
from pgherd.study.study import Column, Study, TableView

if TYPE_CHECKING:
    from pgherd.model.analysis import Finding
    from pgherd.model.run import RunRecord

STUDY = Study(
    package="pgherd.studies.consolidation",
    name="consolidation",
    rank=4,
    help="Compare ways to share memory between databases, and find safe overcommitment.",
    examples=(
        ("pgherd consolidation", "the layouts of E4"),
        ("pgherd consolidation --overcommit 0,0.2,0.4", "with overcommitted memory"),
        ("pgherd consolidation --preset E4 --dry-run", "plan of a published set-up"),
    ),
    capability="databases in one container, one each, or with a balloon; with overcommitment",
    without_cgroups="databases in one container, one each, or with a balloon; without limits and overcommitment",
    common=(*("databases", "schemes", "overcommit", "shared-buffers-percent", "pattern", "repeats", "preset", "memory", "dry-run"),),
    request="ConsolidationRequest",
    resolved="ConsolidationOptions",
    hosts="one",
    tables={
        "consolidation": TableView(
            columns=(
                Column("shared\nbuffers %", "shared_buffers_percent", "number"),
                Column("over-\ncommit", "overcommit", "share"),
                Column("layout", "layout"),
                Column("throughput", "throughput", "value ±"),
                Column("vs. under-\ncommitted", "relative_to_undercommitted", "times", needs="relative_to_undercommitted"),
                Column("vs.\nfirst", "ratio", "times"),
                Column("per\ncore", "throughput_per_core", "value ±"),
                Column("per\nGB", "throughput_per_gb", "value ±"),
                Column("ratio,\ncorrected", "vcpu_corrected_ratio", "times", needs="vcpu_corrected_ratio"),
                Column("corrected\nfor vCPUs", "vcpu_corrected", "value ±"),
                Column("CV\n%", "cv", "brief"),
                Column("CPU\n%", "cpu_percent", "number"),
                Column("published\n(E4)", "throughput", "published"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
            ),
            main=(
                *("shared_buffers_percent", "overcommit", "layout", "throughput", "vcpu_corrected", "ratio", "vcpu_corrected_ratio"),
                *("relative_to_undercommitted", "cv", "cpu_percent", "throughput_per_core", "memory_charged", "throughput_per_gb"),
                *("tainted_trials", "blocks_died"),
            ),
        ),
        wait_event_columns.TABLE: wait_event_columns.VIEW,
    },
    labels={
        "vcpu_corrected": "corrected for vCPUs",
        "vcpu_corrected_ratio": "ratio, corrected for vCPUs",
        "relative_to_undercommitted": "vs. undercommitted",
        "memory_available": "available memory, MB",
        "throughput_per_gb": "throughput per GB",
        "cv": "CV across periods",
        "nopm": "new orders per minute",
        "ratio_to_schemas": "throughput, ratio to schemas",
        "cpu_percent": "CPU (100 % = one core)",
        "trials_with_oom_kill": "trials with OOM kills",
        "blocks_died": "blocks that died of OOM kills",
        "max_safe_overcommit": "max. safe overcommitment",
    },
    percent=frozenset({"memory_pressure"}),
    web=("databases", "schemes", "scale", "period-length"),
)


def benefits(record: RunRecord) -> list[tuple[str, str, Finding]]:
    """Return (check, change, ratio) of a dedicated container and server per database over a shared server, undercommitted.

    For the recommendations of ``pgherd advise``. Empty if the run's ratios are not relative to a shared server.
    """
    from pgherd.model.analysis import Finding

    if record.analysis is None:
        return []
    rows = [row for row in record.analysis.tables.get("consolidation", []) if not row.get("overcommit") and "trials" in row]
    if not rows or rows[0].get("layout") != "shared-server":
        return []
    corrected = rows[0].get("vcpu_corrected")
    vcpus = ", each with dedicated vCPUs" if isinstance(corrected, Finding) and corrected.value is not None else ""
    changes = []
    for row in rows:
        ratio = row.get("ratio")
        if row.get("layout") == "dedicated" and isinstance(ratio, Finding) and ratio.value is not None:
            change = f"layout shared-server → dedicated{vcpus}, buffers {row.get('shared_buffers_percent')} %"
            changes.append(("dedicated-server", change, ratio))
    return changes
