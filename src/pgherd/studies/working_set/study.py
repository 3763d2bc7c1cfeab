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
