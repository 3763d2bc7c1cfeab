"""What is made of Prometheus' answers. tests/it/test_observed_server.py asks a real one."""

from __future__ import annotations

import io
import urllib.request

import pytest

from pgherd.metrics import prometheus
from pgherd.metrics.prometheus import PrometheusError, observe, parse
from pgherd.model.errors import TrialError
from pgherd.model.prometheus import NODE_CPU, NODE_READS, PrometheusSource

SOURCE = PrometheusSource(url="http://127.0.0.1:9", values="db1(:[0-9]+)?", container_id=".*7f2c1d.*")
HOST, SERVER = "server-host:c1", "c1/pg"


def series(name: str, values: list[tuple[float, str]], **labels: str) -> dict:
    return {"metric": {"__name__": name, "instance": "db1:9100", **labels}, "values": [list(pair) for pair in values]}


def test_cpus_are_added_up_where_all_have_a_sample() -> None:
    found = parse(
        [
            [
                series(NODE_CPU, [(1, "10"), (2, "11")], cpu="0", mode="idle"),
                series(NODE_CPU, [(1, "20"), (2, "20.5"), (3, "21")], cpu="1", mode="idle"),
            ]
        ],
        "c1",
        SERVER,
    )
    assert found == {NODE_CPU: {(HOST, "cpu.idle"): [(1, 30), (2, 31.5)], (HOST, "cpu.online"): [(1, 2), (2, 2)]}}


def test_each_exporter_has_its_entities() -> None:
    found = parse(
        [
            [
                series(NODE_READS, [(1, "5")], device="sda"),
                series("node_memory_MemTotal_bytes", [(1, "8e9")]),
                series("pg_stat_database_blks_hit", [(1, "7")], datname="app"),
                series("pg_stat_database_blks_hit", [(1, "9")], datname="template1"),
                series(NODE_CPU, [(1, "9")], cpu="0", mode="guest"),
            ],
            [
                series("container_cpu_usage_seconds_total", [(1, "3")], cpu="total"),
                series("container_spec_cpu_quota", [(1, "150000")]),
                series("container_spec_memory_limit_bytes", [(1, "0")]),
                series("container_memory_usage_bytes", [(1, "900"), (3, "950")]),
                series("container_memory_working_set_bytes", [(1, "600"), (2, "610"), (3, "625")]),
            ],
        ],
        "c1",
        SERVER,
    )
    assert {key: samples for keyed in found.values() for key, samples in keyed.items()} == {
        ("server-disk:c1/sda", "reads"): [(1, 5)],
        (HOST, "memory.total"): [(1, 8e9)],
        ("server:c1/pg", "db.blks_hit"): [(1, 7)],
        ("container:c1", "cpu.usage"): [(1, 3)],
        ("container:c1", "cpu.limit"): [(1, 1.5)],
        ("container:c1", "memory.limit"): [],
        ("container:c1", "memory.usage"): [(1, 900), (3, 950)],
        ("container:c1", "memory.inactive_file"): [(1, 300), (3, 325)],
    }


@pytest.mark.parametrize(("namespace", "counted"), [("20", {"nvme0n1"}), ("0", {"nvme0n1", "nvme0c0n1", "nvme0c1n1"})])
def test_requests_of_a_namespace_of_several_paths_count_once(namespace: str, counted: set[str]) -> None:
    values = {"nvme0n1": namespace, "nvme0c0n1": "10", "nvme0c1n1": "10"}
    found = parse([[series(NODE_READS, [(1, value)], device=device) for device, value in values.items()]], "c1", SERVER)
    assert {entity.rpartition("/")[2] for entity, _ in found[NODE_READS]} == counted


@pytest.mark.parametrize(
    "matrix", [[{}], [{"metric": {}}], [{"metric": {"__name__": "up"}, "values": []}], [series(NODE_READS, [(1, "x")])], None]
)
def test_an_answer_of_another_form_is_an_error(matrix) -> None:
    with pytest.raises(PrometheusError, match="another form"):
        parse([matrix], "c1", SERVER)


def answered(monkeypatch, *, step: float, ahead: float = 0.0, until: float = 1300.0) -> None:
    """Prometheus with a sample of two series each ``step`` s, whose clock is ahead."""

    def query(url, promql, at):
        if promql == "time()":
            return [0, str(until + ahead)]
        if "container_" in promql:
            return []
        times = [1000 + ahead + number * step for number in range(int(300 / step))]
        return [
            series(name, [(t, str(t - 1000 - ahead)) for t in times], device="sda")
            for name in (NODE_READS, "node_disk_io_time_seconds_total")
        ]

    monkeypatch.setattr(prometheus, "_query", query)
    monkeypatch.setattr(prometheus.time, "time", lambda: until)


def test_step_gaps_and_missing_series_are_told(monkeypatch) -> None:
    answered(monkeypatch, step=5, ahead=40)
    readings, (view, later) = observe(SOURCE, "c1", SERVER, [(1100, 1130), (1130, 1160)])
    assert set(view.series) == {NODE_READS, "node_disk_io_time_seconds_total"}
    assert (view.step, view.gaps, view.longest_gap, view.clock_ahead) == (5, 0, None, 40)
    assert NODE_CPU in view.missing and view.sparse == [] and later.series == view.series
    t, sampler, entity, values = readings[0]
    assert (t, sampler, entity, values) == (1000, "prometheus", "server-disk:c1/sda", {"reads": 0}), "at this host's instants"


def test_a_step_too_long_for_the_window_makes_a_series_sparse(monkeypatch) -> None:
    answered(monkeypatch, step=15)
    readings, (view,) = observe(SOURCE, "c1", SERVER, [(1101, 1110)])
    assert readings == [] and view.series == [] and set(view.sparse) == {NODE_READS, "node_disk_io_time_seconds_total"} and view.step == 15


def test_prometheus_that_does_not_answer_fails_the_trial() -> None:
    with pytest.raises(TrialError, match="Prometheus at http://127.0.0.1:9 does not answer: .*refused"):
        observe(SOURCE, "c1", SERVER, [(1, 2)])


def test_an_answer_that_is_too_large_names_what_makes_it_smaller(monkeypatch) -> None:
    monkeypatch.setattr(prometheus, "_MAX_BYTES", 10)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b"x" * 11))
    with pytest.raises(PrometheusError, match="more than 0 MB; select fewer series, or give fewer --slots"):
        prometheus.query_range("http://127.0.0.1:9", "up", 0, 1, 1)
