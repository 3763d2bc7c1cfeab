"""HTTP server of a run's metrics, for Prometheus. One thread waits for requests.

On loopback it answers requests that name a loopback address. On other addresses it requires a token. It collects at most every half
second, so that frequent scrapes cost little CPU on the measured host. Every answer is in the OpenMetrics text format, which Prometheus
requests first and which is written by pgherd.metrics.openmetrics.

The samples are collected from the run's directory at each scrape. Only the last reading of each source is parsed, so a scrape costs the
same after one second or one minute. A value carries the time at which it was read.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pgherd.drivers.pgbench_output import ProgressLine, read_progress
from pgherd.metrics import guests, run_metrics
from pgherd.metrics.openmetrics import END, CounterTotals, Family, Sample, target_labels, text_of
from pgherd.metrics.run_metrics import DriverTotals, MetricLabels, RunTotals
from pgherd.metrics.spool import LatestReadings
from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.node import files
from pgherd.store.live_state import LiveState, LiveTrial, TailReader, output_dir, read_live, spool_file
from pgherd.store.run_directory import RunDirectory

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


FRESH = 15.0
"""Maximum age of a reading that is served, in seconds. A driver or container that has ended has no newer ones."""


class MetricsCollector:
    """Current metrics of a run. Not thread-safe."""

    def __init__(self, run: Path, record: RunRecord) -> None:
        """Read the finished trials of the run's directory (a resumed run has some) before anything is measured."""
        self._run, self._record = run, record
        self._common_labels = run_metrics.common_labels(record)
        self._metric_labels = MetricLabels(record)
        self._totals = RunTotals(record)
        self._read_trials: set[str] = set()
        self._newest: TrialResult | None = None
        self._trial: int | None = None
        self._samples: LatestReadings | None = None
        self._counter_totals = CounterTotals()
        self._progress: dict[tuple[str, bool], DriverTotals] = {}
        self._emulated: set[str] = set()
        self._files: dict[tuple[int, str], TailReader] = {}
        self._phase = 0
        self._lines_read: dict[tuple[int, int, str], int] = {}
        """(trial, phase, target) → progress lines read so far."""
        for result in self._ended():
            self._totals.add(result)
            self._newest = result

    def samples(self) -> list[Sample]:
        """Return all current samples, unordered."""
        now, live = time.time(), read_live(self._run)
        trial = None if live is None else live.trial
        samples = [*run_metrics.run_info(self._record), *run_metrics.objective_limits(self._record)]
        for result in self._ended():
            self._follow_to_end(result)
            self._totals.add(result)
            self._newest = result
        if trial is not None and trial.number != self._trial:
            self._begin(trial)
        if live is not None and trial is not None:
            samples += self._trial_and_phase(live, trial, now)
            samples += self._sampled(now)
            self._follow(trial, live.phase)
        progress = (sample for driver in self._progress.values() for sample in driver.samples())
        samples += (sample for sample in progress if sample.t is not None and now - sample.t < FRESH)
        trials_remaining = 0 if live is None else live.trials_remaining + int(trial is not None)
        samples.append(Sample(run_metrics.TRIALS_REMAINING, self._common_labels, trials_remaining))
        samples += self._totals.samples()
        if self._newest is not None:
            samples += run_metrics.result_samples(self._record, self._newest, None)
        return samples

    def _ended(self) -> Iterator[TrialResult]:
        """Yield the trials that have ended since the last call, in order."""
        try:
            names = sorted(path.name for path in (self._run / "trials").iterdir() if path.name.isdecimal())
        except OSError:
            return
        for name in names:
            if name not in self._read_trials:
                self._read_trials.add(name)
                try:
                    yield RunDirectory(self._run).result(name)
                except PgherdError:
                    continue  # the analysis of the run reports it

    def _begin(self, trial: LiveTrial) -> None:
        self._trial, self._phase = trial.number, 0
        self._samples = LatestReadings(TailReader(spool_file(self._run, trial.number)))
        self._counter_totals.begin_trial()
        self._emulated = set()
        self._metric_labels.set_hosts({name: container.host for name, container in trial.containers.items()})
        self._files = {}

    def _trial_and_phase(self, live: LiveState, trial: LiveTrial, now: float) -> Iterator[Sample]:
        """Yield the current trial and phase."""
        trial_labels = {
            **self._common_labels,
            "trial": f"{trial.number:04d}",
            "study": self._record.study,
            "point": run_metrics.point_text(trial.point),
            "repeat": str(trial.repeat),
        }
        yield Sample(run_metrics.TRIAL, {**trial_labels, "reason": trial.reason}, 1.0)
        yield Sample(run_metrics.TRIAL_START, self._common_labels, trial.begun)
        yield Sample(run_metrics.TRIAL_PLANNED, self._common_labels, sum(phase.warmup + phase.seconds for phase in trial.phases))
        for coordinate, value in trial.point.items():
            if not isinstance(value, str):
                yield Sample(run_metrics.TRIAL_PARAMETER, {**self._common_labels, "name": coordinate}, value)
        if live.phase is None or live.phase_begun is None or live.phase >= len(trial.phases):
            return
        phase = trial.phases[live.phase]
        start = live.phase_begun + phase.warmup
        if phase.until == "drivers" or now < start + phase.seconds:
            part = "warmup" if now < start else "measured"
            phase_labels = {"number": str(live.phase + 1), "phase": phase.name, "part": part, "load": phase.words}
            yield Sample(run_metrics.PHASE, {**trial_labels, **phase_labels}, 1.0)

    def _sampled(self, now: float) -> Iterator[Sample]:
        """Yield the last readings of the samplers, and their numbers of failures."""
        assert self._samples is not None
        for t, entity, metric, value in self._samples.read():
            if metric.name == guests.EMULATED and value:
                self._emulated.add(entity.removeprefix("guest:"))
            if now - t < FRESH and (series := self._metric_labels.series(entity, metric.name)) is not None:
                family, labels = series
                yield Sample(family, labels, self._counter_totals.total(entity, metric, value), t)
        failures: dict[str, int] = {}
        for source, failed in self._samples.spool.failures.items():
            failures[source.sampler] = failures.get(source.sampler, 0) + failed.count
        for sampler, count in failures.items():
            yield Sample(run_metrics.SAMPLER_FAILURES, {**self._common_labels, "sampler": sampler}, count)

    def _follow(self, trial: LiveTrial, phase: int | None) -> None:
        """Read new progress lines of the drivers. Drivers of earlier phases have ended when the next phase starts."""
        if phase is None:
            return
        for number in range(self._phase, min(phase + 1, len(trial.phases))):
            for target, driver in trial.phases[number].loads.items():
                directory = output_dir(trial, number, target)
                if driver != "pgbench" or directory is None:
                    continue
                lines = self._files.setdefault((number, target), TailReader(directory / "stderr"))
                progress = read_progress(b"\n".join(lines).decode(errors="replace"))
                self._add_progress(trial.number, number, target, progress, target_labels(target)["container"] in self._emulated)
        self._phase = phase

    def _follow_to_end(self, result: TrialResult) -> None:
        """Read the remaining progress lines of a finished trial from the stored output of its drivers."""
        for number, phase in enumerate(result.phases):
            for target in phase.targets:
                stderr = next((name for name in target.raw if name.endswith("/stderr")), None)
                if target.driver != "pgbench" or stderr is None:
                    continue
                try:
                    output = files.read_below(self._run, f"trials/{result.id}/{stderr}")
                except (OSError, PgherdError):
                    continue
                lines = read_progress(output.decode(errors="replace"))
                read = self._lines_read.get((int(result.id), number, target.target), 0)
                # The stored output of another host has the times of that host's clock.
                remaining = [replace(line, at=line.at - target.clock_ahead) for line in lines[read:]]
                self._add_progress(int(result.id), number, target.target, remaining, run_metrics.emulated(phase, target.target))
        self._lines_read = {key: count for key, count in self._lines_read.items() if key[0] > int(result.id)}

    def _add_progress(self, trial: int, phase: int, target: str, lines: list[ProgressLine], emulated: bool) -> None:
        """Add progress lines of one target's driver. ``emulated``: its guest runs on emulated processors."""
        labels = {**run_metrics.target_common_labels(self._record, target), **target_labels(target)}
        progress = self._progress.setdefault((target, emulated), DriverTotals(labels, emulated))
        key = (trial, phase, target)
        if lines and key not in self._lines_read:
            progress.begin()
        for line in lines:
            progress.add_line(line.at, line.tps, line.latency, line.failed, line.lag, line.skipped)
            self._lines_read[key] = self._lines_read.get(key, 0) + 1
