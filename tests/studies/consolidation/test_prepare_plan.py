from pgherd.model.deployment import GuestMemory
from pgherd.studies.consolidation.options import ConsolidationOptions
from pgherd.studies.consolidation.prepare_plan import lines
from pgherd.studies.consolidation.propose import planned

GB = 2**30


def options(**changes):
    known = {
        "cores": 8,
        "memory": 11 * GB,
        "vcpus": 3,
        "container_memory": 4 * GB,
        "share": 4 * GB,
        "runtime": "cgroup",
        "cpu_mode": "quota",
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "workload": "orders",
        "scale": 30,
        "client_place": "outside",
        "seconds": 600,
        "ramp": 40,
    }
    return ConsolidationOptions.model_validate({**known, **changes})


def test_each_scheme_has_a_line():
    given = options(rates=(0.0, 0.5), unavailable={4: "make is missing"})
    assert lines(given, planned(given)) == [
        "Scheme 1 (1/1/M): 1 container (cgroup, 3 vCPU by quota, 8 GB), in each 1 server of PostgreSQL 18.6 with 2 databases; "
        "shared_buffers 2048MB, 6144MB.",
        "Scheme 2 (1/M/M): 1 container (cgroup, 3 vCPU by quota, 8 GB), in each 2 servers of PostgreSQL 18.6 with 1 database; "
        "shared_buffers 1024MB, 3072MB.",
        "Scheme 3 (M/M/M): 2 containers (cgroup, 3 vCPU by quota, 4 GB), in each 1 server of PostgreSQL 18.6 with 1 database; "
        "shared_buffers 1024MB, 3072MB.",
        "Scheme 4 (M/M/M + balloon) is not available: make is missing.",
        "Memory: 8 GB configured, 11 GB on the host; available when overcommitted by 50 %: 4 GB.",
        "Load: orders of scale 30 in each database, clients outside the containers: 30,2,30,2/2,30,2,30 in periods of 10 min, "
        "each after 40 s of warm-up.",
    ]


def test_guests_are_shown_with_their_memory_and_what_a_balloon_leaves_them():
    given = options(runtime="vm", cpu_mode="none", schemes=(1, 3), buffers=(25,))
    first, second, *_ = lines(given, planned(given), GuestMemory(policy="guest-balloon"))
    assert first.startswith("Scheme 1 (1/1/M): 1 guest (vm, 3 vCPU, 8 GB)")
    assert first.endswith("; memory of each guest: its balloon leaves it at least 2 GB of its 8 GB.")
    assert second.startswith("Scheme 3 (M/M/M): 2 guests (vm, 3 vCPU, 4 GB)")
    assert second.endswith("; memory of each guest: its balloon leaves it at least 1 GB of its 4 GB.")


def test_without_limits_that_is_said():
    given = options(runtime="process", container_memory=None, cpu_mode="none", schemes=(3,))
    assert "2 containers (process)" in lines(given, planned(given))[0]
    assert "assumed (no limit is enforced)" in lines(given, planned(given))[1]
