"""Definition of the study of a changing memory limit."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.balloon_limits",
    name="balloon-limits",
    started_by="balloon",
    rank=6,
    help="Change a server's memory limit under load, with and without pg_balloon.",
    examples=(
        ("pgherd balloon limits", "halve, quarter and restore"),
        ("pgherd balloon limits --limits 100,100,88,75,62,50,100", "in steps"),
        ("pgherd balloon limits --updates 10 --pools large,balloon", ""),
    ),
    capability="a memory limit that changes under load (pgherd balloon limits)",
    without_cgroups=None,
    common=(*("pools", "limits", "updates", "swap", "memory", "scale", "clients", "vcpus", "repeats", "duration", "dry-run", "yes"),),
    request="BalloonLimitsRequest",
    resolved="BalloonLimitsOptions",
    hosts="one",
    tables={
        "balloon-limits": TableView(
            columns=(
                Column("pool", "pool"),
                Column("change", "change"),
                Column("limit\nMB", "limit_mb", "whole"),
                Column("tps", "throughput", "value ±"),
                Column("of the best\nnative pool", "native_ratio", "times"),
                Column("s to\nthe limit", "limited_after", "value ±"),
                Column("s to\n90 %", "recovered_after", "value ±"),
                Column("p99\nms", "p99", "value ±"),
                Column("p99 ÷ no\nchange", "p99_change_ratio", "times"),
                Column("slowest\nms", "slowest", "value ±"),
                Column("slowest,\nadded", "slowest_added", "value ±"),
                Column("lowest\nsecond", "lowest_share", "value ±"),
                Column("refused", "refused"),
                Column("swap\nMB", "swap_mb", "value ±"),
                Column("zram\nMB", "zram_mb", "value ±"),
            ),
            main=(
                *("pool", "change", "limit_mb", "throughput", "native_ratio", "limited_after", "recovered_after", "p99", "lowest_share"),
                *("p99_change_ratio", "slowest", "slowest_added", "refused", "swap_mb", "zram_mb"),
            ),
        ),
        "pools": TableView(
            columns=(
                Column("pool", "pool"),
                Column("shared_buffers\nMB", "shared_buffers_mb", "whole"),
                Column("trials", "trials"),
                Column("killed", "killed"),
            )
        ),
    },
    labels={
        "limit_mb": "memory limit",
        "native_ratio": "throughput, ratio to the best native pool",
        "limited_after": "time until the kernel took the limit",
        "recovered_after": "time to 90 % of steady throughput",
        "lowest_share": "lowest second, ratio to steady throughput",
        "p99_change_ratio": "p99, ratio to the phase without a change",
        "slowest": "slowest transaction of all trials",
        "slowest_added": "slowest transaction, beyond the slowest without a change",
        "swap_mb": "memory in swap",
        "zram_mb": "memory of compressed swap, charged to no limit",
        "shared_buffers_mb": "shared buffers",
        "killed": "trials with an OOM kill",
        "refused": "changes that the kernel refused",
    },
)
