import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgherd.metrics import openmetrics
from pgherd.metrics.openmetrics import END, CounterTotals, Family, Sample, families, named, target_labels, text_of
from pgherd.metrics.run_metrics import FAMILIES
from pgherd.metrics.sampler import metric, samplers

UNITS = ("seconds", "bytes")


def test_what_every_sampler_reads_is_known():
    """A sampler that is missing here is served all the same, but is in no list of names: add it to openmetrics._SERVED."""
    assert set(samplers()) == set(openmetrics._SERVED)


def test_every_metric_of_the_registry_has_a_name():
    served = {name for name in samplers() if openmetrics._SERVED[name]}
    for name in served:
        for one in samplers()[name].metrics:
            assert any(named(f"{kind}:x/y", one.name) for kind in openmetrics._SERVED[name]), one


def test_names_follow_the_conventions_and_no_two_families_have_one():
    """Prometheus documentation, "Metric and label naming"."""
    found = [*families(), *FAMILIES]
    assert len({family.name for family in found}) == len(found)
    assert len({family.sample for family in found}) == len(found)
    for family in found:
        assert re.fullmatch(r"pgherd_[a-z][a-z0-9_]*[a-z0-9]", family.name), family
        assert not family.name.endswith(("_total", "_info", "_count", "_sum", "_bucket", "_created")), family
        assert family.unit in ("", *UNITS) and (not family.unit or family.name.endswith(f"_{family.unit}")), family
        assert family.unit or not family.name.endswith(UNITS) or family.name.endswith("time_seconds"), family
        assert family.help and "\n" not in family.help and not family.help.endswith("."), family
        assert all(re.fullmatch(r"[a-z]+", label) for label in family.labels), family


@pytest.mark.parametrize(
    ("entity", "name", "sample", "labels"),
    [
        ("host", "cpu.steal", "pgherd_host_cpu_seconds_total", {"mode": "steal"}),
        ("host", "memory.available", "pgherd_host_memory_available_bytes", {}),
        ("host", "context_switches", "pgherd_host_context_switches_total", {}),
        ("host", "psi.io.full", "pgherd_host_psi_io_full_seconds_total", {}),
        ("container:db01", "cpu.usage", "pgherd_container_cpu_usage_seconds_total", {"container": "db01"}),
        ("container:db01", "memory.usage", "pgherd_container_memory_usage_bytes", {"container": "db01"}),
        ("server:db01/pg", "db.xact_commit", "pgherd_server_db_xact_commit_total", {"container": "db01", "server": "pg"}),
        ("server:db01/pg", "wal.bytes", "pgherd_server_wal_bytes_total", {"container": "db01", "server": "pg"}),
        ("server:db01/pg", "balloon.bytes", "pgherd_server_balloon_bytes", {"container": "db01", "server": "pg"}),
        (
            "server:db01/pg",
            "checkpoint.write_time",
            "pgherd_server_checkpoint_write_time_seconds_total",
            {"container": "db01", "server": "pg"},
        ),
        ("disk:vda", "read_bytes", "pgherd_disk_read_bytes_total", {"device": "vda"}),
        ("disk:vda", "io_time_weighted", "pgherd_disk_io_time_weighted_seconds_total", {"device": "vda"}),
        ("swap:ours", "swap.used", "pgherd_swap_used_bytes", {"area": "ours"}),
        ("zram:zram0", "zram.mem_used_max", "pgherd_zram_mem_used_max_bytes", {"device": "zram0"}),
        ("run-cgroup", "memory.refaults_file", "pgherd_run_cgroup_memory_refaults_total", {"type": "file"}),
        ("container:a", "memory.refaults_anon", "pgherd_container_memory_refaults_total", {"container": "a", "type": "anon"}),
        ("container:a", "memory.swapped_in_pages", "pgherd_container_memory_swapped_in_pages_total", {"container": "a"}),
        ("guest:a", "guest.memory_managed", "pgherd_guest_memory_managed_bytes", {"container": "a"}),
        ("guest:a", "guest.ksm_merged", "pgherd_guest_ksm_merged_bytes", {"container": "a"}),
        ("host", "ksm.full_scans", "pgherd_host_ksm_full_scans_total", {}),
        ("zram:zram0", "zram.same_pages", "pgherd_zram_same_pages", {"device": "zram0"}),
        (
            "server:db01/pg",
            "balloon.resident_in_balloon",
            "pgherd_server_balloon_resident_in_balloon_bytes",
            {"container": "db01", "server": "pg"},
        ),
        ("pgherd", "cpu.usage", "pgherd_process_cpu_usage_seconds_total", {}),
        ("platform:monitor", "cpu.usage", "pgherd_platform_cpu_usage_seconds_total", {"part": "monitor"}),
        ("backend:db01/pg", "cpu.usage", "pgherd_backend_cpu_usage_seconds_total", {"container": "db01", "server": "pg"}),
        (
            "driver:local/db01/pg/bench",
            "memory.rss",
            "pgherd_driver_memory_rss_bytes",
            {"target": "local/db01/pg/bench", "container": "db01", "server": "pg", "database": "bench"},
        ),
        ("guest:db01", "cpu.user", "pgherd_guest_cpu_seconds_total", {"container": "db01", "mode": "user"}),
        ("guest-disk:db01/vda", "writes", "pgherd_guest_disk_writes_total", {"container": "db01", "device": "vda"}),
        ("guest-swap:db01/vdb", "swap.used", "pgherd_guest_swap_used_bytes", {"container": "db01", "area": "vdb"}),
    ],
)
def test_entities_become_names_and_labels(entity, name, sample, labels):
    family, found = named(entity, name)
    assert (family.sample, found) == (sample, labels)
    assert set(labels) == set(family.labels)
    assert family.kind == metric(name).kind


@pytest.mark.parametrize(
    ("entity", "labels"),
    [
        ("host:db2", {"host": "db2"}),
        ("pgherd:db2", {"host": "db2"}),
        ("disk:db2/sda", {"host": "db2", "device": "sda"}),
        ("disk:cciss/c0d0", {"device": "cciss/c0d0"}),
        ("platform:db2/monitor", {"host": "db2", "part": "monitor"}),
        ("container:locked-memory:db2", {"host": "db2", "container": "locked-memory"}),
        ("server:db01/pg", {"container": "db01", "server": "pg"}),
    ],
)
def test_of_several_hosts_the_entity_tells_which(entity, labels):
    """pgherd.distributed.merge_results names the entities."""
    name = {"disk": "reads", "server": "db.deadlocks"}.get(entity.partition(":")[0], "memory.usage")
    _, found = named(entity, name, ("db1", "db2"))
    assert found == labels


def test_an_entity_of_an_unknown_kind_has_no_name():
    assert named("moon", "cpu.usage") is None


def test_a_target_that_is_no_database_is_only_its_name():
    assert target_labels("data") == {"target": "data", "container": "", "server": "", "database": ""}


def test_a_torn_counter_keeps_its_level_and_one_that_may_reset_does_not():
    totals = CounterTotals()
    usage, commits, memory = metric("cpu.usage"), metric("db.xact_commit"), metric("memory.usage")
    assert [totals.total("container:a", usage, value) for value in (5, 4, 6)] == [5, 5, 6]
    assert [totals.total("server:a/pg", commits, value) for value in (5, 4, 6)] == [5, 4, 6]
    assert [totals.total("container:a", memory, value) for value in (5, 4, 6)] == [5, 4, 6]


def test_with_a_new_trial_a_container_s_counter_may_begin_anew_and_the_host_s_goes_on():
    totals = CounterTotals()
    usage, user = metric("cpu.usage"), metric("cpu.user")
    assert totals.total("container:a", usage, 9) == totals.total("host", user, 9) == 9
    totals.begin_trial()
    assert totals.total("container:a", usage, 1) == 1
    assert totals.total("host", user, 8) == 9


def test_after_a_reboot_between_trials_the_host_s_counters_begin_anew():
    totals = CounterTotals()
    user = metric("cpu.user")
    assert totals.total("host", user, 9) == 9
    totals.begin_trial()
    totals.begin_trial()  # a trial without a reading
    assert [totals.total("host", user, value) for value in (3, 1, 4)] == [3, 3, 4], "in a trial a reading is torn"


def test_a_counter_that_wraps_is_reset():
    totals, busy = CounterTotals(), metric("io_time")
    assert [totals.total("disk:sda", busy, value) for value in (4294967, 4294966, 1, 2)] == [4294967, 4294967, 1, 2]


@given(
    text=st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    value=st.floats(allow_nan=False, allow_infinity=False),
    t=st.integers(0, 2**41).map(lambda t: t / 1000),
)
def test_whatever_a_label_holds_comes_back_from_another_parser(text, value, t):
    family = Family("pgherd_x_seconds", "gauge", 'An "odd" \\ help', "seconds", ("what",))
    labels = {"run": "r", "what": text}
    lines = [*text_of(family, [Sample(family, labels, value, t), Sample(family, {**labels, "what": text + "2"}, 1.0)]), END]
    (found,) = text_string_to_metric_families("".join(lines))
    assert (found.name, found.type, found.unit) == ("pgherd_x_seconds", "gauge", "seconds")
    first, second = found.samples
    assert first.labels == labels and first.value == value and float(first.timestamp) == pytest.approx(t, abs=1e-3)
    assert second.labels["what"] == text + "2" and second.timestamp is None
