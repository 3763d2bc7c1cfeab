"""What E3 published, and beside what it stands."""

from __future__ import annotations

from collections.abc import Callable

from pgherd.model.load import Script
from pgherd.studies.scaling import published
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.study.database_options import DatabaseOptions

Build = Callable[..., ScalingOptions]


def test_each_reading_stands_beside_its_own_workload(options: Build) -> None:
    reads, writes = options(), options(scripts=(Script(source="builtin:tpcb-like"),))
    assert "8 → 20 clients" in published.linear_region(reads)["published"] and published.linear_region(writes) == {}
    assert "≈ 20 → beyond 48 clients" in published.saturation(writes)["published"] and published.saturation(reads) == {}
    assert all("VMware" in published.linear_region(reads)[key] for key in ("published",))
    assert published.linear_region(reads)["experiment"] == "E3"


def test_ratios_only_where_e3_compared_the_like(options: Build) -> None:
    def server(**more: object) -> DatabaseOptions:
        return options(**more)

    tpcb = (Script(source="builtin:tpcb-like"),)
    old, new = server(pg_version="15.18"), server()
    assert "4 ×" in published.ratio(new, old, "peak")["published"]
    assert "8 → 20" in published.ratio(new, old, "linear")["published"]
    assert published.ratio(new, old, "slope") == {}
    assert "+100 %" in published.ratio(server(scripts=tpcb), server(scripts=tpcb, pg_version="15.18"), "peak")["published"]
    assert published.ratio(server(scripts=tpcb), old, "peak") == {}, "another load"
    assert published.ratio(server(settings={"jit": "off"}), new, "peak") == {}
    assert published.ratio(server(pg_version="18.5"), new, "peak") == {}, "a minor release is no other version"
    assert "on par" in published.ratio(server(runtime="vm"), new, "peak")["published"]
    assert published.ratio(server(runtime="process"), new, "peak") == {}, "neither of the two is virtual"
    assert published.ratio(server(runtime="vm"), server(runtime="vm"), "peak") == {}
    assert published.ratio(server(runtime="vm"), server(server="host=elsewhere"), "peak") == {}, "what theirs runs on is not known"
