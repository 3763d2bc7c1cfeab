"""Demand from a real Prometheus, which has three days of made-up samples of cAdvisor."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgherd.cli.place import command
from pgherd.model.errors import UsageError
from pgherd.prepare.prometheus_demand import PrometheusRequest, read_prometheus

DAY, HOUR, SCRAPE = 86400, 3600, 60
CPU, MEMORY, READS = "container_cpu_usage_seconds", "container_memory_working_set_bytes", "container_fs_reads"
SELECT = 'container="postgres"'


def hour(t: float) -> int:
    return int(t) % DAY // HOUR


def counter(rate: Callable[[int], float], first: int, last: int) -> Iterator[tuple[int, float]]:
    """Yield the samples of a counter with this rate."""
    value = 0.0
    for t in range(first, last, SCRAPE):
        yield t, value
        value += SCRAPE * rate(t)


def orders_cpu(t: int) -> float:
    return 0.5 + 0.1 * hour(t)


def openmetrics(end: int) -> str:
    """Return samples of three days and two hours. The container of shop restarts once, and has a gap of three hours.

    A pod called db-0 is in two namespaces, and that in ``b`` replaced db-1.
    """
    start, last = end - 3 * DAY, end + 2 * HOUR
    gap = start + DAY + (27 - hour(start)) % 24 * HOUR  # 03:00 UTC of the second day
    restart = gap + 9 * HOUR
    lines = [f"# TYPE {CPU} counter"]
    series = [
        ('pod="orders-0",container="postgres",id="/1"', counter(orders_cpu, start, last)),
        ('pod="orders-0",container="",id="/0"', counter(orders_cpu, start, last)),
        ('pod="shop-0",container="postgres",id="/2"', counter(lambda _: 0.25, start, gap + 1)),
        ('pod="shop-0",container="postgres",id="/2"', counter(lambda _: 0.25, gap + 3 * HOUR, restart)),
        ('pod="shop-0",container="postgres",id="/3"', counter(lambda _: 0.25, restart, last)),
        ('pod="db-0",container="pg",namespace="a",id="/4"', counter(lambda _: 0.5, start, last)),
        ('pod="db-0",container="pg",namespace="b",id="/5"', counter(lambda _: 0.75, restart, last)),
        ('pod="db-1",container="pg",namespace="b",id="/6"', counter(lambda _: 2, start, restart)),
        ('pod="pay-0",container="server",namespace="c",id="/7"', counter(lambda _: 1, start, last)),
        ('pod="web-0",container="server",namespace="c",id="/8"', counter(lambda _: 0.5, start, last)),
    ]
    lines += [f"{CPU}_total{{{labels}}} {value} {t}" for labels, samples in series for t, value in samples]
    lines.append(f"# TYPE {MEMORY} gauge")
    for t in range(start, last, SCRAPE):
        lines += [
            f'{MEMORY}{{pod="orders-0",container="postgres"}} {2**30 + hour(t - 1) * 2**26} {t}',
            f'{MEMORY}{{pod="shop-0",container="postgres",id="/{2 if t < restart else 3}"}} {2**29} {t}',
        ]
    lines += exporter(start, last, restart)
    lines.append(f"# TYPE {READS} counter")
    for device in ("/dev/sda", "/dev/dm-0"):
        labels = f'pod="orders-0",container="postgres",device="{device}"'
        lines += [f"{READS}_total{{{labels}}} {value} {t}" for t, value in counter(lambda _: 100.0, start, last)]
    return "\n".join([*lines, "# EOF\n"])


def exporter(start: int, last: int, restored: int) -> list[str]:
    """Return samples of postgres_exporter for two servers. That of web-0 has only its sessions by state.

    The position in the WAL of pay-0, which two standbys repeat, starts again at ``restored``. A server of its name is in another namespace.
    """
    pay = 'pod="pay-0",container="exporter",namespace="c",instance="10.0.0.1:9187"'
    series: dict[str, list[tuple[str, Callable[[int], float]]]] = {
        "pg_stat_database_numbackends": [
            (f'{pay},job="pg",datname="a"', lambda t: 3 + hour(t - 1)),
            (f'{pay},job="pg",datname="b"', lambda t: 2),
            (f'{pay},job="again",datname="a"', lambda t: 1),
            ('pod="pay-0",container="exporter",namespace="d",job="pg",datname="a"', lambda t: 1000),
        ],
        "pg_database_size_bytes": [(f'{pay},job="pg",datname="{name}"', lambda t: 2**29) for name in "ab"],
        "pg_stat_replication_pg_current_wal_lsn_bytes": [
            (f'{pay},job="pg",application_name="{name}"', lambda t: 1e6 * (t - start) + (2**40 if t < restored else 0)) for name in "xy"
        ],
        "pg_stat_activity_count": [
            (
                f'pod="web-0",container="exporter",namespace="c",job="pg",datname="a",state="{state}"',
                lambda t, odd=odd: 6 * (t // SCRAPE % 2 == odd),
            )
            for odd, state in enumerate(("active", "idle"))
        ],
    }
    lines = []
    for name, found in series.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{{{labels}}} {value(t)} {t}" for labels, value in found for t in range(start, last, SCRAPE)]
    return lines


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with these samples."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed (Debian: prometheus): {', '.join(missing)}")
    root: Path = tmp_path_factory.mktemp("prometheus")
    (root / "samples").write_text(openmetrics(int(time.time()) // HOUR * HOUR))
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(root / "samples"), str(root / "data")]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    (root / "prometheus.yml").write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = ["prometheus", f"--config.file={root / 'prometheus.yml'}", f"--storage.tsdb.path={root / 'data'}"]
    argv += ["--storage.tsdb.retention.time=1y", f"--web.listen-address=127.0.0.1:{port}"]
    with open(root / "log", "w") as log:
        running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline and running.poll() is None, (root / "log").read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                    break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait(20)


def test_demand_of_three_days(prometheus: str) -> None:
    found = read_prometheus(PrometheusRequest(prometheus, select=SELECT, days=3), 95)
    assert found.names == ("orders-0", "shop-0") and found.days == 3 and len(found.slots) == 24
    assert found.resources == ("cpu_cores", "memory_mb", "read_iops")
    assert found.high[0, 0].tolist() == pytest.approx([orders_cpu(h * HOUR) for h in range(24)], rel=0.01)
    assert found.high[0, 1].tolist() == [1024 + 64 * h for h in range(24)]
    assert found.high[1, 0].tolist() == pytest.approx([0.25] * 24, rel=0.01), "a restart and a gap do not lower it"
    assert found.high[0, 2].tolist() == pytest.approx([100] * 24, rel=0.01), "a device made of another counts once"
    assert found.high[1, 1].tolist() == [512] * 24, "a restart does not double the memory"
    unknown = {(one.database, one.resource): one.values for one in found.unknown}
    assert unknown == {("shop-0", "cpu_cores"): 3, ("shop-0", "read_iops"): 72}
    assert any("no container_fs_writes_total" in note for note in found.notes)


def test_namespaces_and_a_replaced_pod(prometheus: str) -> None:
    found = read_prometheus(PrometheusRequest(prometheus, select='container="pg"', days=3), 95)
    assert found.names == ("a/db-0", "b/db-0") and found.resources == ("cpu_cores",)
    assert found.high[0, 0].tolist() == pytest.approx([0.5] * 24, rel=0.01)
    assert found.high[1, 0].tolist() == pytest.approx([0.75] * 24, rel=0.01)
    assert "Without a recent sample, and left out: db-1 (1 of 3)" in found.notes


def test_wal_connections_and_disk_of_postgres_exporter(prometheus: str) -> None:
    found = read_prometheus(PrometheusRequest(prometheus, select='container="server"', days=3), 95)
    assert found.names == ("pay-0", "web-0") and found.resources == ("cpu_cores", "wal_mb_s", "connections", "disk_mb")
    assert found.high[0, 1].tolist() == pytest.approx([1] * 24, rel=0.02), "two standbys repeat it, and a restore does not count"
    assert found.high[0, 2].tolist() == [5 + h for h in range(24)], "the sum of its databases, and no second target"
    assert found.high[1, 2].tolist() == [6] * 24, "states change, and the sessions are six at any time"
    assert found.high[0, 3].tolist() == [1024] * 24
    assert {(one.database, one.resource): one.values for one in found.unknown} == {("web-0", "wal_mb_s"): 72, ("web-0", "disk_mb"): 72}


def test_fewer_days_than_asked_and_short_slots(prometheus: str) -> None:
    found = read_prometheus(PrometheusRequest(prometheus, select=SELECT, days=10, slots=288), 95)
    assert found.days == 3 and "Prometheus has samples of 3 whole days of 10" in found.notes
    assert found.high[0, 0, 12 * 13 + 6] == pytest.approx(orders_cpu(13 * HOUR), rel=0.01)


def test_a_plan_of_its_databases(prometheus: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(json.dumps({"classes": [{"name": "h", "capacity": {"cpu_cores": 4, "memory_mb": 8192, "read_iops": 1000}}]}))
    words = [prometheus, "--hosts", str(hosts), "--days", "3", "--prometheus-select", SELECT, "--json"]
    document = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
    assert document["placement"] == {"orders-0": "h-1", "shop-0": "h-1"}
    assert document["use"]["h-1"][23] == pytest.approx((orders_cpu(23 * HOUR) + 0.25) / 4, rel=0.01)
    assert any(row["database"] == "shop-0" and row["resource"] == "cpu_cores" for row in document["unknown"])


@pytest.mark.parametrize(
    "words, message",
    [
        ({}, 'database orders-0 has 2 series of container_cpu_usage_seconds_total .container="", job=""; container="postgres"'),
        ({"match": "database=name"}, "no container_cpu_usage_seconds_total with a label name in the last 3 days"),
        ({"select": "container="}, "refused a query: 400 .*parse error"),
    ],
)
def test_what_prometheus_cannot_answer_is_one_sentence(prometheus: str, words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_prometheus(PrometheusRequest(prometheus, days=3, **words), 95)
