"""What is made of Prometheus' answers. tests/it/test_place_prometheus.py asks a real one."""

from __future__ import annotations

import math

import pytest

from pgherd.metrics import prometheus
from pgherd.model.errors import UsageError
from pgherd.prepare.prometheus_demand import PrometheusRequest, read_prometheus

DAY = 86400
NOW = 20_000 * DAY + 6 * 3600 + 17
"""17 s after 06:00 UTC."""
URL = "http://127.0.0.1:9"
CPU, MEMORY, READS = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_fs_reads_total"
BACKENDS, SIZE, LSN = "pg_stat_database_numbackends", "pg_database_size_bytes", "pg_stat_replication_pg_current_wal_lsn_bytes"


@pytest.fixture
def answers(monkeypatch):
    """Make Prometheus answer with these series: (metric, labels, function of the slot's start that returns its value or None)."""

    def answer(*series):
        queries = []

        def query_range(url, query, start, end, step):
            queries.append(query)
            steps = range(int(start), int(end) + 1, int(step))
            found = []
            for metric, labels, value in series:
                if f"({metric}{{" in query:
                    known = [[t, str(value(t - step))] for t in steps if value(t - step) is not None]
                    found += [{"metric": labels, "values": known}] if known else []
            return found

        monkeypatch.setattr(prometheus, "clock", lambda url: NOW)
        monkeypatch.setattr(prometheus, "query_range", query_range)
        return queries

    return answer


def hour(t):
    return t % DAY // 3600


def test_values_are_in_the_slot_in_which_they_were_measured(answers):
    queries = answers(
        (CPU, {"pod": "a", "container": "postgres", "job": "k"}, hour), (MEMORY, {"pod": "a"}, lambda t: 2**20 * (1 + hour(t)))
    )
    found = read_prometheus(PrometheusRequest(URL, days=2), 95)
    assert found.names == ("a",) and found.resources == ("cpu_cores", "memory_mb") and found.days == 2 and not found.unknown
    assert found.high[0, 0].tolist() == list(range(24)) and found.high[0, 1].tolist() == list(range(1, 25)) and found.slots[13] == "13:00"
    assert any("no container_fs_reads_total of the databases, so the plan is without read_iops" in note for note in found.notes)
    assert "The memory is without huge pages, which cAdvisor does not count in it" in found.notes
    by_namespace = f'sum by (pod, namespace, container, job) (rate({CPU}{{pod!="",namespace!=""}}[300s]))'
    by_target = f'sum by (pod, instance, container, name, job) (rate({CPU}{{pod!="",namespace=""}}[300s]))'
    assert any(query.startswith("max_over_time((max by (") for query in queries), "the memory of a restart is not added up"
    assert f"avg_over_time(({by_namespace} or {by_target})[3599s:300s])" in queries


def test_a_gap_is_unknown_and_days_without_samples_are_left_out(answers):
    answers(
        (CPU, {"name": "a"}, lambda t: hour(t) if t >= NOW - 17 - 2 * DAY else None),
        (CPU, {"name": "b"}, lambda t: 5 if t >= NOW - 17 - 2 * DAY and hour(t) != 3 else math.nan),
        (READS, {"name": "b", "device": "/dev/sda"}, lambda t: 7),
        (READS, {"name": "b", "device": "/dev/dm-0"}, lambda t: 7),
    )
    found = read_prometheus(PrometheusRequest(URL, "database=name", days=5), 95)
    assert found.days == 2 and "Prometheus has samples of 2 whole days of 5" in found.notes
    unknown = {(one.database, one.resource): (one.values, one.bound) for one in found.unknown}
    assert unknown == {("b", "cpu_cores"): (2, 5.0), ("a", "read_iops"): (48, 7.0)}, "a device made of others counts once"


def test_servers_are_those_of_the_containers(answers):
    """Series of postgres_exporter are of the database with the same namespace or host. What it lacks is unknown."""
    queries = answers(
        (CPU, {"pod": "a", "namespace": "x", "container": "pg"}, hour),
        (CPU, {"pod": "b", "instance": "h1:8080", "container": "pg"}, hour),
        (BACKENDS, {"pod": "a", "namespace": "x", "job": "pg"}, lambda t: 5 + hour(t)),
        (BACKENDS, {"pod": "a", "namespace": "y", "job": "pg"}, lambda t: 1000),
        (BACKENDS, {"pod": "b", "instance": "h1:9187", "job": "pg"}, lambda t: 3),
        (BACKENDS, {"pod": "b", "instance": "h1:9187", "job": "again"}, lambda t: 4 if hour(t) else None),
        (BACKENDS, {"pod": "b", "instance": "h2:9187", "job": "pg"}, lambda t: 2000),
        ("pg_stat_activity_count", {"pod": "a", "namespace": "x"}, lambda t: 3000),
        (SIZE, {"pod": "b", "instance": "h1:9187", "job": "pg"}, lambda t: 2**30),
        (LSN, {"pod": "b", "instance": "h1:9187", "job": "pg"}, lambda t: 1e6),
    )
    selected = PrometheusRequest(URL, days=1, select='container=~"pg|a,job=\\"b\\"", job="k",name="x",shard!="7"')
    found = read_prometheus(selected, 95)
    assert found.names == ("a", "b") and found.resources == ("cpu_cores", "wal_mb_s", "connections", "disk_mb")
    connections = [[5 + h for h in range(24)], [3, *[4] * 23]]
    assert found.high[:, 2].tolist() == connections, "of two targets the higher value, and no fallback where there is a value"
    assert found.high[1, 3, 0] == 1024 and found.high[1, 1, 0] == 1
    assert {(one.database, one.resource) for one in found.unknown} == {("a", "wal_mb_s"), ("a", "disk_mb")}
    assert any("The disk is that of the databases, without WAL" in note for note in found.notes)
    (query,) = {query for query in queries if BACKENDS in query}
    by_namespace, by_target = (
        f'sum by (pod, {place}, job) ({BACKENDS}{{pod!="",{matcher},shard!="7"}})'
        for place, matcher in (("namespace", 'namespace!=""'), ("instance", 'namespace=""'))
    )
    assert query == f"max_over_time(({by_namespace} or {by_target})[3599s:60s])"
    assert any(f'(delta({LSN}{{pod!="",namespace!="",shard!="7"}}[300s]) / 300 >= 0)' in query for query in queries)


def test_resources_without_a_capacity_are_not_read(answers):
    queries = answers((CPU, {"pod": "a"}, hour), (MEMORY, {"pod": "a"}, hour), (BACKENDS, {"pod": "a"}, hour))
    found = read_prometheus(PrometheusRequest(URL, days=1), 95, {"memory_mb", "write_iops"})
    assert found.resources == ("cpu_cores", "memory_mb") and len(queries) == 3
    missing = "No class of hosts has a capacity of read_iops, wal_mb_s, connections, disk_mb, so none is planned"
    lacking = "Prometheus has no container_fs_writes_total of the databases, so the plan is without write_iops"
    assert found.notes[:2] == (lacking, missing)


def test_two_containers_of_a_database_are_not_added_up(answers):
    answers((CPU, {"pod": "a", "container": "postgres"}, hour), (CPU, {"pod": "a", "container": ""}, hour))
    with pytest.raises(UsageError, match=f'database a has 2 series of {CPU} .container="", job=""; container="postgres".*--prometheus-sel'):
        read_prometheus(PrometheusRequest(URL), 95)


def test_containers_of_docker_that_share_a_label_are_not_one_database(answers):
    project = "container_label_com_docker_compose_project"
    queries = answers(*((CPU, {project: "shop", "instance": "h:80", "name": f"shop-{name}-1"}, lambda _: 1) for name in ("db", "web")))
    request = PrometheusRequest(URL, f"database={project}", select='name="shop-web-1"')
    series = 'container="", job="", name="shop-db-1"; container="", job="", name="shop-web-1"'
    with pytest.raises(UsageError, match=f"database shop has 2 series of {CPU} .{series}.; .*-select 'name=\"shop-web-1\"'"):
        read_prometheus(request, 95)
    assert any(f'instance, container, name, job) (rate({CPU}{{{project}!="",namespace="",name="shop-web-1"}}' in query for query in queries)


@pytest.mark.parametrize("slots", [1, 24, 288])
def test_replicas_are_not_one_database(answers, slots):
    answers(*((CPU, {"app": "db", "namespace": "a", "pod": f"db-{number}"}, lambda _: 1) for number in range(2)))
    with pytest.raises(UsageError, match='database db has 2 series of .*pod="db-0".*pod="db-1".*-select .pod="db-1"'):
        read_prometheus(PrometheusRequest(URL, "database=app", days=1, slots=slots), 95)


def test_a_pod_that_moved_is_the_same_database(answers):
    moved = NOW - 17 - 12 * 3600
    answers(
        (CPU, {"app": "db", "namespace": "a", "pod": "db-x"}, lambda t: 1 if t <= moved else None),
        (CPU, {"app": "db", "namespace": "a", "pod": "db-y"}, lambda t: 2 if t >= moved else None),
    )
    found = read_prometheus(PrometheusRequest(URL, "database=app", days=1), 95)
    assert found.names == ("db",) and not found.unknown
    assert found.high[0, 0].tolist() == [2] * 6 + [1] * 12 + [2] * 6, "in the hour of the move the CPU is not added up"


def test_equal_names_in_two_places_are_two_databases(answers):
    answers(
        (CPU, {"pod": "db-0", "namespace": "a"}, lambda _: 1),
        (CPU, {"pod": "db-0", "namespace": "b"}, lambda _: 2),
        (MEMORY, {"pod": "db-0", "namespace": "b"}, lambda _: 2**20),
        (CPU, {"pod": "x", "namespace": "b"}, lambda _: 3),
        (CPU, {"pod": "y", "instance": "h1:80"}, lambda _: 4),
        (CPU, {"pod": "y", "instance": "h2:80"}, lambda _: 5),
    )
    found = read_prometheus(PrometheusRequest(URL, days=1), 95)
    assert found.names == ("a/db-0", "b/db-0", "x", "h1:80/y", "h2:80/y")
    assert found.high[:, 0, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_replaced_pod_is_left_out(answers):
    replaced = NOW - 17 - 7 * 3600
    answers(
        (CPU, {"pod": "db-0", "namespace": "a"}, lambda t: 4 if t < replaced else None),
        (READS, {"pod": "db-0", "namespace": "a"}, lambda t: 4 if t < replaced else None),
        (CPU, {"pod": "db-0", "namespace": "b"}, lambda t: 1),
        (CPU, {"pod": "late", "namespace": "b"}, lambda t: 2 if t >= replaced else None),
    )
    found = read_prometheus(PrometheusRequest(URL, days=1), 95)
    assert found.names == ("db-0", "late") and found.resources == ("cpu_cores",)
    assert "Without a recent sample, and left out: a/db-0 (1 of 3)" in found.notes


def test_a_short_gap_at_the_end_is_no_removal(answers):
    answers((CPU, {"pod": "a"}, lambda t: 1), (CPU, {"pod": "b"}, lambda t: 1 if t < NOW - 1200 else None))
    assert read_prometheus(PrometheusRequest(URL, days=1, slots=288), 95).names == ("a", "b")


def test_too_many_series_are_refused_before_they_are_stored(answers, monkeypatch):
    monkeypatch.setattr("pgherd.prepare.prometheus_demand.MAX_CELLS", 24 * 7 * 2)
    answers(*((CPU, {"pod": name}, lambda _: 1) for name in "ab"))
    assert read_prometheus(PrometheusRequest(URL, days=1), 95).names == ("a", "b")
    answers(*((CPU, {"pod": name}, lambda _: 1) for name in "abc"))
    with pytest.raises(UsageError, match=f"more than 2 series of {CPU} with pod; select fewer .*, or give fewer --days or --slots"):
        read_prometheus(PrometheusRequest(URL, days=1), 95)


def test_less_than_a_day_is_refused(answers):
    answers((CPU, {"pod": "a"}, lambda t: 1 if t >= NOW - 4 * 3600 else None))
    with pytest.raises(UsageError, match="no day with samples in all 24 slots; a plan needs a whole day"):
        read_prometheus(PrometheusRequest(URL), 95)


def test_no_container_has_the_label(answers):
    answers()
    with pytest.raises(UsageError, match=f"no {CPU} with a label pod in the last 7 days; name the label"):
        read_prometheus(PrometheusRequest(URL), 95)


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"metric": {"pod": "a"}, "values": [[NOW, "x"]]},
        {"metric": {"pod": "a"}, "values": [[NOW, "-1"]]},
        {"metric": {"pod": "a"}, "values": [[NOW, "1e300"]]},
        {"metric": {"pod": "a"}, "values": [[NOW - NOW % 3600 - 7 * DAY, "1"]]},
        {"metric": {"pod": "a"}, "values": [[NOW + DAY, "1"]]},
        {"metric": None, "values": []},
        7,
    ],
)
def test_an_answer_of_another_form_is_an_error(monkeypatch, item):
    monkeypatch.setattr(prometheus, "clock", lambda url: NOW)
    monkeypatch.setattr(prometheus, "query_range", lambda *_: [item])
    with pytest.raises(UsageError, match="another form"):
        read_prometheus(PrometheusRequest(URL), 95)


@pytest.mark.parametrize(
    "request_, message",
    [
        (PrometheusRequest("http://u:p@h:9090"), "contains a user or a password"),
        (PrometheusRequest(URL, "host=pod"), "--prometheus-match host=pod: write it as database=LABEL"),
        (PrometheusRequest(URL, "database=a-b"), "--prometheus-match database=a-b"),
        (PrometheusRequest(URL, slots=5), "--slots 5 do not divide a day"),
        (PrometheusRequest(URL), "Prometheus at http://127.0.0.1:9 does not answer"),
    ],
)
def test_bad_requests(request_, message):
    with pytest.raises(UsageError, match=message):
        read_prometheus(request_, 95)
