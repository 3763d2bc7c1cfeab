"""HTTP server of a run's metrics, for Prometheus. One thread waits for requests.

On loopback it answers requests that name a loopback address. On other addresses it requires a token. It collects at most every half
second, so that frequent scrapes cost little CPU on the measured host. Every answer is in the OpenMetrics text format, which Prometheus
requests first and which is written by pgherd.metrics.openmetrics.
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
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pgherd.export.collection import MetricsCollector
from pgherd.metrics import run_metrics
from pgherd.metrics.openmetrics import END, Family, Sample, text_of
from pgherd.model.errors import UsageError
from pgherd.model.run import RunRecord

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MIN_INTERVAL = 0.5
"""Seconds between two collections."""
MIN_TOKEN_LENGTH = 16
"""Characters."""
_IDLE_SECONDS = 10.0
MAX_CONNECTIONS = 16
"""At the same time. Any user of this host may connect, and each connection is a thread of the process that measures."""
_POLL_SECONDS = 0.5
"""Interval at which the idle server checks for its end."""

Start = Callable[..., Any]
App = Callable[[dict[str, Any], Start], Iterable[bytes]]


@dataclass(frozen=True)
class ListenAddress:
    """Address of an interface of this host, port (0: any free port) and required token."""

    address: str
    port: int
    token: str | None = None


def listen_address(text: str, token_file: Path | None) -> ListenAddress:
    """Parse ``PORT``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``, and read the token from the first line of its file.

    Raises:
        UsageError: the text is invalid, the token is unreadable or too short, or the address is not loopback and there is no token.
    """
    address, _, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--metrics-listen {text}: '{port}' is not a port; give PORT, such as 9187, or ADDRESS:PORT")
    token = None if token_file is None else _read_token(token_file)
    if token is None and not is_loopback(address):
        raise UsageError(
            f"--metrics-listen {text}: other hosts could read the metrics at {address}; "
            "give --metrics-token-file FILE, or serve on 127.0.0.1 and use a tunnel"
        )
    return ListenAddress(address, int(port), token)


def is_loopback(address: str) -> bool:
    """Return whether only this host can reach the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _read_token(file: Path) -> str:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token from {file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    token = lines[0].strip() if lines else ""
    if len(token) < MIN_TOKEN_LENGTH:
        raise UsageError(f"the token in {file} has {len(token)} characters; it needs at least {MIN_TOKEN_LENGTH}")
    return token


class MetricsServer:
    """Server that answers from its creation until ``close``. It has metrics after ``show``."""

    def __init__(self, listen: ListenAddress) -> None:
        """Bind and start to answer.

        Raises:
            UsageError: the address is not of this host, or the port is in use.
        """
        self._collection: MetricsCollector | None = None
        self._lock = threading.Lock()
        self._samples: list[Sample] = []
        self._collected = 0.0
        self._cpu = self._last = 0.0
        self._labels: dict[str, str] = {}
        try:
            family, *_, socket_address = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0]
            server = _Ipv6HttpServer if family == socket.AF_INET6 else _HttpServer
            app = _guarded(self._answer, listen)
            self._http = make_server(str(socket_address[0]), listen.port, app, server_class=server, handler_class=_Handler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot serve metrics at {listen.address}, port {listen.port}: {reason}; choose another --metrics-listen PORT"
            ) from None
        host = f"[{listen.address}]" if ":" in listen.address else listen.address
        self.url = f"http://{host}:{self._http.server_port}/metrics"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_POLL_SECONDS,), name="pgherd-metrics", daemon=True)
        self._thread.start()

    def show(self, run: Path, record: RunRecord) -> None:
        """Serve the metrics of this run from now on."""
        collection = MetricsCollector(run, record)
        with self._lock:
            self._collection, self._labels = collection, run_metrics.common_labels(record)

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _collect(self) -> list[Sample]:
        """Return current samples, or those of less than ``MIN_INTERVAL`` ago."""
        with self._lock:
            if self._collection is None:
                return []
            start = time.monotonic()
            if start - self._collected >= MIN_INTERVAL:
                self._samples = [
                    *self._collection.samples(),
                    Sample(run_metrics.EXPORTER_CPU, self._labels, self._cpu),
                    Sample(run_metrics.EXPORTER_LAST, self._labels, self._last),
                ]
                self._collected = time.monotonic()
                self._last = self._collected - start
            return self._samples

    def _answer(self, _: dict[str, Any], start: Start) -> Iterable[bytes]:
        cpu = time.thread_time()
        lines = (line for family, samples in grouped(self._collect()) for line in text_of(family, samples))
        body = "".join((*lines, END)).encode()
        start("200 OK", [("Content-Type", CONTENT_TYPE)])
        with self._lock:
            self._cpu += time.thread_time() - cpu
        return [body]


def grouped(samples: Iterable[Sample]) -> list[tuple[Family, list[Sample]]]:
    """Return the samples by family, sorted by its name: OpenMetrics requires that a family is in one piece."""
    by_family: dict[Family, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    return sorted(by_family.items(), key=lambda item: item[0].name)


def _guarded(application: App, listen: ListenAddress) -> App:
    """Pass on authorized requests for the metrics only."""

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if listen.token is not None:
            authorization = environ.get("HTTP_AUTHORIZATION", "")
            if not hmac.compare_digest(authorization.encode("latin-1", "replace"), f"Bearer {listen.token}".encode()):
                return _refused(start, HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", ("WWW-Authenticate", "Bearer"))
        elif not _names_loopback(environ.get("HTTP_HOST", "")):
            return _refused(start, HTTPStatus.FORBIDDEN, "use a loopback address, such as http://localhost")
        if environ.get("REQUEST_METHOD") != "GET":
            return _refused(start, HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed", ("Allow", "GET"))
        if environ.get("PATH_INFO") != "/metrics":
            return _refused(start, HTTPStatus.NOT_FOUND, "the metrics are at /metrics")
        try:
            return application(environ, start)
        except Exception as error:  # the client gets the error, because the terminal belongs to the run
            return _refused(start, HTTPStatus.INTERNAL_SERVER_ERROR, f"cannot write the metrics: {type(error).__name__}: {error}")

    return answer


def _names_loopback(host: str) -> bool:
    """Return whether the Host header names a loopback address. DNS rebinding by a web page does not."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name)


def _refused(start: Start, status: HTTPStatus, reason: str, *headers: tuple[str, str]) -> list[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{reason}\n".encode()]


class _HttpServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*arguments, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def server_bind(self) -> None:
        """Bind without the look-up of this host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or send no request."""


class _Ipv6HttpServer(_HttpServer):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the terminal belongs to the run."""

    def address_string(self) -> str:
        """Return the address without a look-up of its name."""
        return str(self.client_address[0])
