"""The HTTP server of a run's metrics, for Prometheus to scrape: one thread that sleeps until somebody asks.

On loopback it answers whoever can reach it under a loopback name; elsewhere only who shows the token. Within half a second of a
collection it answers with what was collected then, and near a border between phases it waits until that is over: many or badly timed
scrapes must not be seen in what is measured. What Prometheus asks for, OpenMetrics, is written by pgherd.metrics.openmetrics, in a fifth of
the time that prometheus_client takes for it; the older text format by prometheus_client.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pgherd.export import node_exporter
from pgherd.export.collection import Collection
from pgherd.metrics import run_metrics
from pgherd.metrics.openmetrics import END, Family, Sample, text_of
from pgherd.model.errors import UsageError
from pgherd.model.run import RunRecord

if TYPE_CHECKING:
    from prometheus_client import Metric

OPENMETRICS = "application/openmetrics-text"
LEAST_INTERVAL = 0.5
"""Seconds between two collections."""
LONGEST_WAIT = 60.0
"""Seconds that the end of a run is held up for its last scrape, at most."""
LEAST_TOKEN = 16
"""Characters."""
_IDLE_SECONDS = 10.0
_ENDING_SECONDS = 0.5
"""How long the end may take to be noticed: that often the idle server wakes up."""
_LATE = 5.0
"""Seconds by which a scrape may be late."""

Start = Callable[..., Any]
App = Callable[[dict[str, Any], Start], Iterable[bytes]]


@dataclass(frozen=True)
class ListenAddress:
    """Where to serve: an address (of an interface of this host) and a port (0: any that is free); the token that is asked for."""

    address: str
    port: int
    token: str | None = None


def listen_address(text: str, token: Path | None) -> ListenAddress:
    """An endpoint from ``PORT``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT`` and the file whose first line is the token.

    Raises:
        UsageError: it is none of these, the token cannot be read or is too short, or others could reach the address and there is no token.
    """
    address, _, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--metrics {text}: '{port}' is not a port; give PORT, such as 9187, or ADDRESS:PORT")
    secret = None if token is None else _secret(token)
    if secret is None and not is_loopback(address):
        raise UsageError(
            f"--metrics {text}: others could read the metrics at {address}; give --metrics-token FILE, or serve on 127.0.0.1 and tunnel"
        )
    return ListenAddress(address, int(port), secret)


def is_loopback(address: str) -> bool:
    """Whether only this host can reach the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _secret(file: Path) -> str:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token cannot be read from {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    secret = lines[0].strip() if lines else ""
    if len(secret) < LEAST_TOKEN:
        raise UsageError(f"the token in {file} has {len(secret)} characters; give it at least {LEAST_TOKEN}")
    return secret


class MetricsServer:
    """Serves from when it is made to ``close``; tells of a run from ``show`` on."""

    def __init__(self, where: ListenAddress) -> None:
        """Bind and begin to answer.

        Raises:
            UsageError: the address is not this host's, or the port is taken.
        """
        self._collection: Collection | None = None
        self._lock = threading.Lock()
        self._found: list[Sample] = []
        self._collected = 0.0
        self._scrapes: list[float] = []
        self._cpu = self._last = 0.0
        self._labels: dict[str, str] = {}
        guarded = _guarded(self._application(), where)
        try:
            family, *_, place = socket.getaddrinfo(where.address, where.port, type=socket.SOCK_STREAM)[0]
            server = _V6 if family == socket.AF_INET6 else _Server
            self._http = make_server(str(place[0]), where.port, guarded, server_class=server, handler_class=_Handler)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"metrics cannot be served at {where.address}, port {where.port}: {why}; choose another --metrics PORT"
            ) from None
        shown = f"[{where.address}]" if ":" in where.address else where.address
        self.url = f"http://{shown}:{self._http.server_port}/metrics"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_ENDING_SECONDS,), name="pgherd-metrics", daemon=True)
        self._thread.start()

    def show(self, run: Path, record: RunRecord) -> tuple[str, str] | None:
        """Tell of this run from now on; returns the address and version of a node_exporter found on this host."""
        beside = node_exporter.find()
        collection = Collection(run, record, beside)
        with self._lock:
            self._collection, self._labels = collection, run_metrics.everywhere(record)
        return beside

    def collect(self) -> Iterable[Metric]:
        """What prometheus_client asks of a collector: all families, as of now or of less than half a second ago."""
        from prometheus_client import Metric

        for family, samples in grouped(self._samples()):
            metric = Metric(family.name, family.help, family.kind, family.unit)
            for _, labels, value, t in samples:
                metric.add_sample(family.sample, dict(labels), value, timestamp=t)
            yield metric

    def _samples(self) -> list[Sample]:
        with self._lock:
            if self._collection is None:
                return []
            if time.monotonic() - self._collected >= LEAST_INTERVAL:
                time.sleep(self._collection.pause())
                began = time.monotonic()
                found = self._collection.samples()
                found.append(Sample(run_metrics.EXPORTER_CPU, self._labels, self._cpu))
                found.append(Sample(run_metrics.EXPORTER_LAST, self._labels, self._last))
                self._found = found
                self._collected = time.monotonic()
                self._last = self._collected - began
            return self._found

    def expected(self) -> float | None:
        """Within how many seconds the next scrape should come, by the time between the last two; None where nobody scrapes regularly."""
        if len(self._scrapes) < 2:
            return None
        due = self._scrapes[-1] + (self._scrapes[-1] - self._scrapes[-2]) + _LATE - time.monotonic()
        return due if 0 < due <= LONGEST_WAIT else None

    def await_scrape(self, seconds: float) -> bool:
        """Wait so long for one more scrape; whether it came."""
        before, deadline = self._scrapes[-1:], time.monotonic() + seconds
        while self._scrapes[-1:] == before and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._scrapes[-1:] != before

    def close(self) -> None:
        """Answer nobody any more."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _application(self) -> App:
        """The application that writes what is collected, in whichever of its formats the scraper asks for."""
        from prometheus_client import CollectorRegistry, make_wsgi_app

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        write_text: App = make_wsgi_app(registry, disable_compression=True)

        def write(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
            if not any(kind.split(";")[0].strip() == OPENMETRICS for kind in environ.get("HTTP_ACCEPT", "").split(",")):
                return write_text({**environ, "QUERY_STRING": "", "HTTP_ACCEPT": ""}, start)
            lines = (line for family, samples in grouped(self._samples()) for line in text_of(family, samples))
            written = "".join((*lines, END)).encode()
            start("200 OK", [("Content-Type", f"{OPENMETRICS}; version=1.0.0; charset=utf-8")])
            return [written]

        def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
            cpu = time.thread_time()
            written = write(environ, start)
            with self._lock:
                self._cpu += time.thread_time() - cpu
                self._scrapes = [*self._scrapes[-1:], time.monotonic()]
            return written

        return answer


def grouped(samples: Iterable[Sample]) -> list[tuple[Family, list[Sample]]]:
    """The samples of each family together, as both formats want them, by name."""
    by_family: dict[Family, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    return sorted(by_family.items(), key=lambda item: item[0].name)


def _guarded(application: App, where: ListenAddress) -> App:
    """Let through what asks for the metrics and may have them."""

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if where.token is not None:
            shown = environ.get("HTTP_AUTHORIZATION", "")
            if not hmac.compare_digest(shown.encode("latin-1", "replace"), f"Bearer {where.token}".encode()):
                return _refused(start, HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", ("WWW-Authenticate", "Bearer"))
        elif not _asked_by_loopback_name(environ.get("HTTP_HOST", "")):
            return _refused(start, HTTPStatus.FORBIDDEN, "ask by a loopback address, such as http://localhost")
        if environ.get("REQUEST_METHOD") != "GET":
            return _refused(start, HTTPStatus.METHOD_NOT_ALLOWED, "metrics can only be read", ("Allow", "GET"))
        if environ.get("PATH_INFO") != "/metrics":
            return _refused(start, HTTPStatus.NOT_FOUND, "the metrics are at /metrics")
        try:
            return application(environ, start)
        except Exception as error:  # whoever asks is told; the terminal is the run's
            return _refused(start, HTTPStatus.INTERNAL_SERVER_ERROR, f"the metrics cannot be written: {type(error).__name__}: {error}")

    return answer


def _asked_by_loopback_name(host: str) -> bool:
    """Whether the request names a loopback address: a web page that had its own name lead here does not."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name)


def _refused(start: Start, status: HTTPStatus, why: str, *headers: tuple[str, str]) -> list[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{why}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the look-up of our own name, which may take seconds and which nothing needs."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that went away, or said nothing for too long, is no matter of the run's."""


class _V6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the run's."""

    def address_string(self) -> str:
        """No look-up of names."""
        return str(self.client_address[0])
