"""Definition of the study that verifies a placement."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.place_verify",
    name="place-verify",
    started_by="place",
    rank=90,
    help="Verify a placement with real servers (pgherd place --verify).",
    capability="planned hosts as containers with CPU quotas (pgherd place --verify)",
    without_cgroups=None,
    common=("duration", "warmup", "repeats", "time-budget", "dry-run", "yes"),
    request="PlaceVerifyRequest",
    resolved="PlaceVerifyOptions",
    hosts="one",
    tables={
        "place-verify": TableView(
            columns=(
                Column("host", "planned_host"),
                Column("databases", "databases"),
                Column("cores\nplanned", "planned_cores", "number"),
                Column("cores\nhere", "cores_here", "number"),
                Column("slots", "verified_slots"),
                Column("mean\nerror", "cpu_error", "share ±"),
                Column("largest\nerror", "largest_cpu_error", "share"),
                Column("within\n10 %", "within_10_percent", "share"),
                Column("in the\ninterval", "in_interval", "share"),
            )
        ),
    },
    labels={
        "planned_host": "host of the plan",
        "planned_cores": "cores planned",
        "cores_here": "cores here",
        "verified_slots": "verified slots",
        "cpu_error": "mean error of CPU",
        "cpu_error_without_reference": "mean error without the reference database",
        "predicted_without_reference": "predicted CPU without the reference database",
        "slowness": "CPU of the reference database by that of the calibration",
        "largest_cpu_error": "largest error of CPU",
        "within_10_percent": "slots within 10 %",
        "in_interval": "slots in the interval",
        "slot": "slot",
        "predicted_cpu": "predicted CPU",
        "measured_cpu": "measured CPU",
        "overload_predicted": "overload predicted",
        "overload_measured": "overload measured",
        "missed_overloads": "missed overloads",
        "false_alarms": "false alarms of overload",
        "cpu_per_transaction": "CPU per transaction",
        "cpu_of_idle_server": "CPU of an idle server",
        "slots": "verified slots of the hosts",
    },
    percent=frozenset(
        {
            "cpu_error",
            "cpu_error_without_reference",
            "largest_cpu_error",
            "within_10_percent",
            "in_interval",
            "missed_overloads",
            "false_alarms",
        }
    ),
)
