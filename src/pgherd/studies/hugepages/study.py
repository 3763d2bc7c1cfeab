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
    capability="a server on several page sizes",
    checks_host=True,
    common=(*("page-sizes", "clients", "scale", "set", "max-blocks", "time-budget", "yes", "dry-run"),),
    request="HugepagesRequest",
    resolved="HugepagesOptions",
    propose_module="options",
    hosts="one",
    tables={
        "hugepages": TableView(
            columns=(
                Column("pages", "pages"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("gain\n%", "gain", "gain"),
                Column("published\n(E9) %", "gain", "published"),
                Column("conclusion", "conclusion"),
                Column("on huge\npages", "huge_page_share", "share"),
                Column("faults\n/tx", "page_faults", "brief"),
                Column("TLB misses\n/tx", "tlb_misses", "brief"),
                Column("page tables\nMB", "page_tables", "brief"),
                Column("pages\nreserved", "pages_reserved", "number"),
            ),
            main=(
                "pages",
                "throughput",
                "gain",
                "conclusion",
                "huge_page_share",
                "tlb_misses",
                "page_faults",
                "page_tables",
                "pages_reserved",
            ),
        )
    },
    labels={"hugepages": "huge pages"},
    percent=frozenset({"huge_page_share", "page_walk_cycle_share"}),
    figures=("pgherd.studies.compare.figures", "figures"),
    web=("page-sizes", "workload", "scale", "duration", "time-budget"),
)
