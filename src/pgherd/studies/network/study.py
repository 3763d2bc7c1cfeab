"""Declaration of the network study."""

from __future__ import annotations

from pgherd.study.study import Study

STUDY = Study(
    package="pgherd.studies.network",
    name="network",
    rank=9,
    help="Measure TCP throughput by number of streams with iperf3.",
    examples=(
        ("pgherd network --to db2", "'iperf3 --server' runs on db2"),
        ("pgherd network --to db2 --to db3:5300 --streams 1,2,4,8,16,32", ""),
        ("pgherd network --cluster mine", "between all hosts of a cluster"),
        ("pgherd network --netns --netns-rate 200M", "between network namespaces"),
    ),
    capability="a link by number of streams",
    checks_host=True,
    needs_server=False,
    common=(*("to", "streams", "hosts", "netns", "reverse", "duration", "repeats", "time-budget", "cluster", "dry-run"),),
    request="NetworkRequest",
    resolved="NetworkOptions",
    propose_module="options",
    each_host=True,
    lead=("matrix", "network"),
    web=("netns", "streams", "duration", "netns-rate"),
)
