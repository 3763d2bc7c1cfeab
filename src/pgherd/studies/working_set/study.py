"""The working-set study as one object."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.working_set",
    name="working-set",
    rank=5,
    help="Find how much memory a workload needs.",
    examples=(
        ("pgherd working-set", "memory and shared buffers, for 30 and 2 clients"),
        ("pgherd working-set --vary memory --clients 8 --precision 5%", ""),
        ("pgherd working-set --configured-memory 4GB", "with the headroom that this leaves"),
    ),
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
                Column("from\nmisses, MB", "by_misses", "between"),
                Column("memory\nin use, MB", "by_use", "whole"),
                Column("plateau\ntps", "plateau", "compact"),
                Column("tainted\ntrials", "tainted", "tainted"),
                Column("pressure-free\nfrom, MB", "by_pressure", "number"),
            ),
            main=(
                *("varied", "clients", "working_set", "shape", "by_misses", "by_use", "by_pressure"),
                *("plateau", "gain_share", "dead", "tainted"),
            ),
        )
    },
    labels={
        "working-set": "working set",
        "by_misses": "from misses",
        "by_use": "memory in use",
        "by_pressure": "pressure-free from",
        "buffers_share": "shared buffers, share of memory",
        "buffer_misses": "buffer misses per transaction",
        "refaults": "refaults per transaction",
        "dead": "out of memory at, MB",
    },
    percent=frozenset({"buffers_share", "gain_share"}),
    web=("clients", "vary", "workload", "scale", "initial-sizes"),
)
