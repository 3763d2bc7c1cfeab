"""I/O view of a trial: devices below its servers and loaded volumes, their counters, checkpoints, and a trace if
requested.

Everything except the trace is free, because devices' counters are sampled and servers' logs are written anyway.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.analysis.checkpoints import latency_fields
from pgherd.analysis.io_pattern import patterns
from pgherd.drivers.pgbench_output import LoggedTransaction, read_logs
from pgherd.host import block_trace, storage
from pgherd.host.block_trace import TracedRequests, parse_trace
from pgherd.host.kernel_files import text_of
from pgherd.host.storage import Device
from pgherd.metrics.aggregate import near
from pgherd.metrics.diskstats import NO_NUMBER, device_series, guest_series, nvme_paths
from pgherd.metrics.sampler import GuestView, SamplingView, ServerView
from pgherd.metrics.server_statistics import checkpoints
from pgherd.metrics.spool import SpoolReading
from pgherd.model.device_io import BlockRequest, Checkpoint, DeviceIo, DeviceRole, DeviceView, TraceCost
from pgherd.model.errors import CapabilityError
from pgherd.model.result import PhaseResult
from pgherd.node.files import UnsafeFileError
from pgherd.node.protocol import Command, Node

TRACE = "block-trace.txt"
"""File of traced events as text in the trial's directory. It is compressed after reading."""

MAX_LOG_BYTES = 2**30
"""Maximum bytes of a server's log that is read."""

Roles = dict[DeviceRole, list[str]]


@dataclass
class DeviceLayout:
    """Devices with files of servers and loaded volumes: device number → device and its roles.

    ``logs`` maps servers to their logs. ``guests`` has the devices of guests, without their series.
    """

    devices: dict[str, tuple[Device, Roles]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    guests: list[DeviceView] = field(default_factory=list)


def layout(
    node: Node, servers: Sequence[ServerView], guests: Sequence[GuestView] = (), volumes: Mapping[str, str] | None = None
) -> DeviceLayout:
    """Find the devices below servers on this node. A postmaster's working directory is its data directory.

    Files in a guest are on the devices that hold the images of its drives. ``volumes`` are loaded ones, target →
    directory.
    """
    result = DeviceLayout()
    local = [server for server in servers if server.pid]
    inside = {drive.server for guest in guests for drive in guest.drives}
    result.guests = _guest_devices(node, guests, result)
    if len(local) + len(inside & {server.name for server in servers}) < len(servers):
        result.missing.append("external server: the devices below its files are unknown here")
    paths: dict[str, tuple[DeviceRole, str]] = {directory: ("volume", name) for name, directory in (volumes or {}).items()}
    if not local and not paths:
        return result
    for server in local:
        data = f"/proc/{server.pid}/cwd"
        paths[f"{data}/base"] = ("data", server.name)
        paths[f"{data}/pg_wal/."] = ("wal", server.name)
        try:
            tablespaces = node.listdir(f"{data}/pg_tblspc")
        except OSError:
            tablespaces = []
        paths |= {f"{data}/pg_tblspc/{name}/.": ("tablespace", server.name) for name in tablespaces}
    device_of = storage.devices_of(node, list(paths))
    for path, (role, name) in paths.items():
        device = device_of.get(path)
        if device is None:
            label = f"volume {name}" if role == "volume" else f"the {role} of {name}"
            result.missing.append(f"{label} is on no visible block device (tmpfs, a network or an overlay)")
            continue
        names_of = result.devices.setdefault(device.number, (device, {}))[1].setdefault(role, [])
        if name not in names_of:
            names_of.append(name)
    for device, _ in list(result.devices.values()):
        for underlying in storage.devices_below(node, device):
            result.devices.setdefault(underlying.number, (underlying, {}))
    result.logs = _logs(node, local) if local else {}
    return result


def _guest_devices(node: Node, guests: Sequence[GuestView], result: DeviceLayout) -> list[DeviceView]:
    """Return E11's two views of each drive, by the guest and by its hypervisor. Adds the underlying devices to
    ``result``.
    """
    drives = [(guest, drive) for guest in guests for drive in guest.drives]
    device_of = storage.devices_of(node, [drive.path for _, drive in drives])
    views = []
    for guest, drive in drives:
        entity = f"guest-drive:{guest.name}/{drive.name}"
        role: DeviceRole = "tablespace" if drive.role == "temp" else drive.role
        below = [device_of[drive.path].number] if drive.path in device_of else []
        if drive.device:
            name = f"{guest.name}/{drive.device}"
            views.append(DeviceView(number=f"guest-disk:{name}", name=name, roles={role: [drive.server]}, below=[entity]))
        views.append(DeviceView(number=entity, name=f"{guest.name}/{drive.name} (QEMU)", below=below))
    for device in device_of.values():
        for member in (device, *storage.devices_below(node, device)):
            result.devices.setdefault(member.number, (member, {}))
    return views


def _logs(node: Node, servers: Sequence[ServerView]) -> dict[str, str]:
    """Return server → its log, which is next to its data directory."""
    links = node.run(Command(["readlink", "--", *(f"/proc/{server.pid}/cwd" for server in servers)]))
    lines = links.out.splitlines()
    if len(lines) != len(servers):
        return {}
    return {server.name: f"{line}.log" for server, line in zip(servers, lines, strict=True)}


class DeviceIoRecorder:
    """I/O view of one running trial. End it with ``stop`` or ``abandon``, then call ``onto``."""

    def __init__(self, node: Node, view: SamplingView, directory: Path, known: DeviceLayout | None = None) -> None:
        """Find the devices (unless they are ``known``), and start tracing if the view requests it."""
        self._node, self._directory = node, directory
        self._layout = layout(node, view.servers, view.guests, view.volumes) if known is None else known
        self._tracing: block_trace.BlockTrace | None = None
        self._trace, self._cost = TracedRequests(), TraceCost(cpu=None, events=0, lost=0)
        self._namespaces: dict[str, str] = {}
        """Number of a hidden path → number of its NVMe namespace. Requests are traced by path."""
        if view.trace and self._layout.devices:
            paths = nvme_paths(text_of(node, "/proc/diskstats"))
            self._namespaces = {path: namespace for path, namespace in paths if namespace in self._layout.devices}
            if self._namespaces.pop(NO_NUMBER, None) is not None:
                self._layout.missing.append("no trace of NVMe namespaces with several paths: the kernel shows no numbers of the paths")
            try:
                self._tracing = block_trace.BlockTrace(node, sorted({*self._layout.devices, *self._namespaces}), directory)
            except CapabilityError as error:  # tracing worked when the run was prepared
                self._layout.missing.append(f"no trace: {error}")
        elif view.trace:
            self._layout.missing.append("no trace: the block devices of the loaded files are unknown")

    def stop(self) -> None:
        """End the trace. It is read later."""
        if self._tracing is not None:
            self._tracing.stop()

    def abandon(self) -> None:
        """Discard the trace of a failed trial."""
        if self._tracing is not None:
            self._tracing.abandon()

    def onto(self, played: Sequence[PhaseResult], readings: Sequence[SpoolReading]) -> list[PhaseResult]:
        """Return the phases with their I/O view."""
        self._read_trace()
        logs = {server: self._log(path) for server, path in self._layout.logs.items()}
        results = []
        for phase in played:
            nearby = near(readings, phase.start, phase.end)
            results.append(phase.model_copy(update={"io": self._view(phase, nearby, logs)}))
        return results

    def _read_trace(self) -> None:
        if self._tracing is None:
            return
        text = self._directory / TRACE
        try:
            self._trace = parse_trace(self._tracing.lines(text))
        except OSError as error:
            self._layout.missing.append(f"the trace: {error}")
            self._tracing.abandon()
        else:
            with open(text, "rb") as plain, gzip.open(f"{text}.gz", "wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed)
        text.unlink(missing_ok=True)
        trace = self._trace
        self._cost = TraceCost(cpu=self._tracing.cpu, events=trace.events, lost=trace.lost, incomplete=trace.incomplete)

    def _log(self, path: str) -> list[str]:
        try:
            return self._node.read_untrusted(path, MAX_LOG_BYTES).decode(errors="replace").splitlines()
        except (OSError, UnsafeFileError):
            return []

    def _view(self, phase: PhaseResult, readings: Iterable[SpoolReading], logs: dict[str, list[str]]) -> DeviceIo:
        series = device_series(readings, phase.start, phase.end)
        traced = self._traced(phase)
        devices = []
        for number, (device, roles) in self._layout.devices.items():
            view = DeviceView(number=number, name=device.name, roles=roles, below=list(device.below))
            if number in series:
                view = view.model_copy(update={"series": series[number]})
            if self._tracing is not None:
                view = view.model_copy(update={"trace": patterns(traced.get(number, []))})
            devices.append(view)
        inside = guest_series(readings, phase.start, phase.end) if self._layout.guests else {}
        devices += [view.model_copy(update={"series": inside.get(view.number, view.series)}) for view in self._layout.guests]
        in_window: list[Checkpoint] = []
        for server, lines in logs.items():
            in_window += checkpoints(lines, server, phase.start, phase.end)
        return DeviceIo(
            devices=devices,
            checkpoints=in_window,
            trace=self._cost if self._tracing is not None else None,
            missing=list(self._layout.missing),
            **latency_fields(
                ((transaction.at, transaction.latency) for transaction in self._logged(phase)), phase.start, phase.end, in_window
            ),
        )

    def _logged(self, phase: PhaseResult) -> Iterator[LoggedTransaction]:
        """Yield logged transactions of the phase's databases from the files of its drivers."""
        for target in phase.targets:
            if target.driver != "pgbench":
                continue
            texts = {}
            for name in target.raw:
                file = Path(name)
                if file.suffix == ".gz":
                    with contextlib.suppress(OSError, EOFError):
                        texts[file.stem] = gzip.decompress((self._directory / name).read_bytes()).decode(errors="replace")
            yield from read_logs(texts, target.latency.lag_mean is not None)

    def _traced(self, phase: PhaseResult) -> dict[str, list[BlockRequest]]:
        """Return device → requests issued in the phase's window."""
        by_device: dict[str, list[BlockRequest]] = {}
        if self._tracing is not None:
            low, high = phase.start - self._tracing.clock, phase.end - self._tracing.clock
            for request in self._trace.requests:
                if low <= request.issued < high:
                    by_device.setdefault(self._namespaces.get(request.device, request.device), []).append(request)
        return by_device


def require_traceable(node: Node, wanted: bool) -> list[str]:
    """Require, if a trace is ``wanted``, that tracing works. Return a sentence about it. Raises CapabilityError."""
    if not wanted:
        return []
    block_trace.require_tracing(node)
    return ["perf traces block requests; the report shows the overhead."]


def begin(node: Node, view: SamplingView, directory: Path) -> DeviceIoRecorder:
    """Observe the devices below a view's servers and volumes. What cannot be observed is listed in the view, and does
    not fail.
    """
    return DeviceIoRecorder(node, view, directory)
