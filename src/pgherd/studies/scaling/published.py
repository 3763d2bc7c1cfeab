"""What E3 published (reference: VMware's white paper on vFabric Postgres 9.2; one server on 32 cores, pgbench scale 100)."""

from __future__ import annotations

from pgherd.studies.scaling.options import scripts_of
from pgherd.study.database_options import DatabaseOptions

SOURCE = "VMware vFabric Postgres 9.2: Performance and Best Practices (32 cores, scale 100)"

LINEAR = "linear region 8 → 20 clients, from the older version to the newer"
SATURATION = "saturation ≈ 20 → beyond 48 clients, from the older version to the newer"
PEAK = {"select-only": "peak ≈ 4 × the older version's", "tpcb-like": "peak almost +100 % against the older version"}
PLACE = "virtual is on par with physical"


def linear_region(options: DatabaseOptions) -> dict[str, str]:
    """What to set beside the end of the linear region: E3 read it off its select-only curve."""
    return _beside(LINEAR) if scripts_of(options) == "select-only" else {}


def saturation(options: DatabaseOptions) -> dict[str, str]:
    """What to set beside the saturation point: E3 read it off its default workload's curve."""
    return _beside(SATURATION) if scripts_of(options) == "tpcb-like" else {}


def ratio(options: DatabaseOptions, baseline: DatabaseOptions, of: str) -> dict[str, str]:
    """What to set beside the ratio of two variants' ``peak``, ``slope`` or ``linear`` region: only where E3 compared the like."""
    workload = scripts_of(options)
    if workload != scripts_of(baseline):
        return {}
    if major(options) != major(baseline):
        if of == "peak" and workload in PEAK:
            return _beside(PEAK[workload])
        return _beside(LINEAR) if of == "linear" and workload == "select-only" else {}
    # Of somebody else's server it is not known whether it is virtual.
    places = {"unknown" if one.server is not None else "vm" if one.runtime == "vm" else "physical" for one in (options, baseline)}
    return _beside(PLACE) if of == "peak" and places == {"vm", "physical"} else {}


def major(options: DatabaseOptions) -> str:
    """PostgreSQL's major version."""
    return options.pg_version.partition(".")[0]


def _beside(text: str) -> dict[str, str]:
    return {"experiment": "E3", "published": f"{text} ({SOURCE})"}
