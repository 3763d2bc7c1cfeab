"""Definition of the isolation study."""

from __future__ import annotations

from pgherd.study import wait_event_columns
from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.isolation",
    name="isolation",
    rank=5,
    help="Measure what a noisy neighbour costs a database.",
    examples=(
        ("pgherd isolation", "default schemes"),
        ("pgherd isolation --schemes shared-container,cpuset --aggressors cpu", ""),
        ("pgherd isolation --schemes quota,io --aggressors wal,temp --iops 500", ""),
        ("pgherd isolation --runtime vm", "virtual machines"),
    ),
    capability="a victim next to an aggressor, in one server or one container, or with limits of each",
    without_cgroups="a victim next to an aggressor, in one server or one container, or on CPUs of each",
    common=(*("schemes", "aggressors", "rate", "clients", "aggressor-clients", "vcpus", "repeats", "duration", "iops", "dry-run", "yes"),),
    request="IsolationRequest",
    resolved="IsolationOptions",
    hosts="one",
    default_metric="worst_p99_ratio",
    tables={
        "isolation": TableView(
            columns=(
                Column("scheme", "scheme"),
                Column("aggressor", "aggressor"),
                Column("p99\nratio", "p99_ratio", "times"),
                Column("p50\nratio", "p50_ratio", "times"),
                Column("throughput\nratio", "throughput_ratio", "times"),
                Column("conclusion", "conclusion"),
                Column("p99 alone\nms", "p99_alone", "value ±"),
                Column("aggressor\nper s", "aggressor_throughput", "value ±"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
            ),
            main=("scheme", "aggressor", "p99_ratio", "p50_ratio", "throughput_ratio", "conclusion", "p99_alone", "aggressor_throughput"),
        ),
        "worst": TableView(
            columns=(
                Column("scheme", "scheme"),
                Column("worst p99\nratio", "worst_p99_ratio", "times"),
                Column("aggressor", "aggressor"),
            )
        ),
        wait_event_columns.TABLE: wait_event_columns.VIEW,
    },
    labels={
        "p99_ratio": "p99, ratio to alone",
        "p50_ratio": "p50, ratio to alone",
        "throughput_ratio": "throughput, ratio to alone",
        "p99_alone": "p99 alone",
        "aggressor_throughput": "aggressor's throughput",
        "worst_p99_ratio": "worst p99 ratio",
        "worst": "worst aggressor of each scheme",
    },
    web=("schemes", "aggressors", "duration", "repeats"),
)
