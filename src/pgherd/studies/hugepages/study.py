"""Definition of the huge pages study."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.hugepages",
    name="hugepages",
    rank=6,
    help="Measure the effect of huge pages on shared memory.",
    examples=(
        ("pgherd hugepages", "all page sizes that this host has"),
        ("pgherd hugepages --page-sizes none,2MB --clients 32 --set shared_buffers=2GB", ""),
    ),
    common=(*("page-sizes", "clients", "scale", "set", "max-blocks", "time-budget", "yes", "dry-run"),),
    request="HugepagesRequest",
    resolved="HugepagesOptions",
    hosts="one",
    tables={
        "hugepages": TableView(
            columns=(
                Column("pages", "pages"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("gain\n%", "gain", "gain"),
                Column("published\n(E9) %", "gain", "published"),
                Column("conclusion", "verdict"),
                Column("on huge\npages", "backed", "share"),
                Column("faults\n/tx", "faults", "brief"),
                Column("TLB misses\n/tx", "tlb_misses", "brief"),
                Column("page tables\nMB", "page_tables", "brief"),
                Column("pages\nreserved", "reserved", "number"),
            ),
            main=("pages", "throughput", "gain", "verdict", "backed", "tlb_misses", "faults", "page_tables", "reserved"),
        )
    },
    labels={"hugepages": "huge pages"},
    percent=frozenset({"backed", "walking"}),
    figures=("pgherd.studies.compare.figures", "figures"),
    web=("page-sizes", "workload", "scale", "duration", "time-budget"),
)
