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
                Column("by misses\nMB", "by_misses", "between"),
                Column("in use\nMB", "by_use", "whole"),
                Column("plateau\ntps", "plateau", "compact"),
                Column("tainted\ntrials", "tainted", "tainted"),
                Column("no waiting\nfrom, MB", "by_pressure", "number"),
            ),
            main=(
                *("varied", "clients", "working_set", "shape", "by_misses", "by_use", "by_pressure"),
                *("plateau", "gain_share", "dead", "tainted"),
            ),
        )
    },
    labels={
        "working-set": "working set",
        "by_misses": "by misses",
        "by_use": "in use at the largest size",
        "by_pressure": "no waiting from",
        "buffers_share": "buffers' share of the memory",
        "buffer_misses": "buffer misses per transaction",
        "refaults": "file pages read again per transaction",
        "dead": "does not live at, MB",
    },
    percent=frozenset({"buffers_share", "gain_share"}),
    web=("clients", "vary", "workload", "scale", "initial-sizes"),
)
