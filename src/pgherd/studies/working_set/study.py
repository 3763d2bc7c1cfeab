"""The working-set study as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgherd.study.study import Column, Study, TableView

if TYPE_CHECKING:
    from pgherd.model.analysis import Analysis, Finding

STUDY = Study(
    package="pgherd.studies.working_set",
    name="working-set",
    rank=5,
    help="Find how much memory a workload needs.",
    examples=(
        ("pgherd working-set", "for 30 and 2 clients"),
        ("pgherd working-set --vary memory --clients 8 --precision 5%", ""),
        ("pgherd working-set --configured-memory 4GB", "its headroom"),
    ),
    capability="memory that a workload needs, by shrinking its container",
    without_cgroups=None,
    common=(*("clients", "vary", "workload", "scale", "precision", "configured-memory", "time-budget", "yes", "dry-run"),),
    request="WorkingSetRequest",
    resolved="WorkingSetOptions",
    hosts="one",
    needs_direct_io=True,
    tables={
        "working-set": TableView(
            columns=(
                Column("varied", "varied"),
                Column("clients", "clients", "number"),
                Column("working\nset, MB", "working_set", "between"),
                Column("shape", "shape"),
                Column("from\nmisses, MB", "from_misses", "between"),
                Column("memory\nin use, MB", "from_memory_in_use", "whole"),
                Column("plateau\ntps", "plateau", "compact"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
                Column("pressure-free\nfrom, MB", "from_psi", "number"),
            ),
            main=(
                *("varied", "clients", "working_set", "shape", "from_misses", "from_memory_in_use", "from_psi"),
                *("plateau", "plateau_gain", "out_of_memory_sizes", "tainted_trials"),
            ),
        )
    },
    labels={
        "working-set": "working set",
        "from_memory_in_use": "memory in use",
        "from_psi": "pressure-free from",
        "buffer_misses": "buffer misses per transaction",
        "refaults": "refaults per transaction",
        "out_of_memory_sizes": "out of memory at, MB",
    },
    percent=frozenset({"shared_buffers_share", "plateau_gain", "memory_or_io_pressure"}),
    web=("clients", "vary", "workload", "scale", "initial-sizes"),
)


def memory_needed(analysis: Analysis) -> list[Finding]:
    """Return the findings with the memory (MB) that a container needs, one per number of clients. For ``pgherd place``.

    A flat curve needs less than its smallest size, so it counts only if there is no other.
    """
    from pgherd.studies.working_set.analyse import FINDING_NAMES, VARIED

    rows = [row for row in analysis.tables.get("working-set", []) if row["varied"] == VARIED["memory"]]
    rows = [row for row in rows if row["shape"] != "flat"] or rows
    return [analysis.findings[f"{FINDING_NAMES['memory']}.{row['clients']}"] for row in rows]
