"""The I/O view of a trial: which devices its servers and loaded volumes lie on, what these saw, the servers' checkpoints, and a trace
if asked for.

Everything but the trace is free: the devices' counters are sampled anyway, and the servers' logs are written anyway.
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
from pgherd.drivers.pgbench_output import Logged, read_logs
from pgherd.host import block_devices, block_trace
from pgherd.host.block_devices import Device
from pgherd.metrics.aggregate import near
from pgherd.metrics.block_events import Trace, parse
from pgherd.metrics.checkpoint_log import checkpoints
from pgherd.metrics.diskstats import device_series, guest_series
from pgherd.metrics.sampler import GuestView, ServerView, View
from pgherd.metrics.spool import SpoolReading
from pgherd.model.errors import CapabilityError
from pgherd.model.io_view import BlockRequest, Checkpoint, DeviceRole, DeviceView, IoView, TraceCost
from pgherd.model.result import PhaseResult
from pgherd.node.protocol import Command, Node

TRACE = "block-trace.txt"
"""The traced events as text, in the trial's directory; compressed once they are read."""

Roles = dict[DeviceRole, list[str]]


@dataclass
class Layout:
    """Where the files of servers and loaded volumes lie: number of a device → the device and the roles it has; ``logs``: server →
    its log; ``guests``: the devices of guests, without their series."""

    devices: dict[str, tuple[Device, Roles]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    guests: list[DeviceView] = field(default_factory=list)


def layout(node: Node, servers: Sequence[ServerView], guests: Sequence[GuestView] = (), volumes: Mapping[str, str] | None = None) -> Layout:
    """Find out where the files of servers lie which run on this node; a postmaster's working directory is its data directory. What lies in
    a guest lies on the devices that hold its drives' images. ``volumes``: loaded ones, target → directory."""
    found = Layout()
    here = [server for server in servers if server.pid]
    inside = {drive.server for guest in guests for drive in guest.drives}
    found.guests = _guest_devices(node, guests, found)
    if len(here) + len(inside & {server.name for server in servers}) < len(servers):
        found.missing.append("somebody else's server: on which devices its files lie cannot be seen from here")
    places: dict[str, tuple[DeviceRole, str]] = {directory: ("volume", name) for name, directory in (volumes or {}).items()}
    if not here and not places:
        return found
    for server in here:
        data = f"/proc/{server.pid}/cwd"
        places[f"{data}/base"] = ("data", server.name)
        places[f"{data}/pg_wal/."] = ("wal", server.name)
        try:
            tablespaces = node.listdir(f"{data}/pg_tblspc")
        except OSError:
            tablespaces = []
        places |= {f"{data}/pg_tblspc/{name}/.": ("tablespace", server.name) for name in tablespaces}
    on = block_devices.devices_of(node, list(places))
    for path, (role, name) in places.items():
        device = on.get(path)
        if device is None:
            what = f"volume {name}" if role == "volume" else f"the {role} of {name}"
            found.missing.append(f"{what} lies on no block device that can be seen (tmpfs, a network or an overlay)")
            continue
        names_of = found.devices.setdefault(device.number, (device, {}))[1].setdefault(role, [])
        if name not in names_of:
            names_of.append(name)
    for device, _ in list(found.devices.values()):
        for below in block_devices.chain(node, device):
            found.devices.setdefault(below.number, (below, {}))
    found.logs = _logs(node, here) if here else {}
    return found


def _guest_devices(node: Node, guests: Sequence[GuestView], found: Layout) -> list[DeviceView]:
    """E11's two views of each drive: as the guest sees it, and below that as its hypervisor does; ``found`` gets the devices below."""
    drives = [(guest, drive) for guest in guests for drive in guest.drives]
    on = block_devices.devices_of(node, [drive.path for _, drive in drives])
    views = []
    for guest, drive in drives:
        entity = f"guest-drive:{guest.name}/{drive.name}"
        role: DeviceRole = "tablespace" if drive.role == "temp" else drive.role
        below = [on[drive.path].number] if drive.path in on else []
        if drive.device:
            name = f"{guest.name}/{drive.device}"
            views.append(DeviceView(number=f"guest-disk:{name}", name=name, roles={role: [drive.server]}, below=[entity]))
        views.append(DeviceView(number=entity, name=f"{guest.name}/{drive.name} (QEMU)", below=below))
    for device in on.values():
        for one in (device, *block_devices.chain(node, device)):
            found.devices.setdefault(one.number, (one, {}))
    return views


def _logs(node: Node, servers: Sequence[ServerView]) -> dict[str, str]:
    """Server → its log, which lies beside its data directory."""
    done = node.run(Command(["readlink", "--", *(f"/proc/{server.pid}/cwd" for server in servers)]))
    lines = done.out.splitlines()
    if len(lines) != len(servers):
        return {}
    return {server.name: f"{line}.log" for server, line in zip(servers, lines, strict=True)}


class Watching:
    """The I/O view of one trial while it runs; end it with ``stop`` or ``abandon``, then ask ``onto``."""

    def __init__(self, node: Node, view: View, directory: Path, known: Layout | None = None) -> None:
        """Find the devices (or take those that are ``known``), and begin to trace where the view asks for it."""
        self._node, self._directory = node, directory
        self._layout = layout(node, view.servers, view.guests, view.volumes) if known is None else known
        self._tracing: block_trace.BlockTrace | None = None
        self._trace, self._cost = Trace(), TraceCost(cpu=None, events=0, lost=0)
        if view.trace and self._layout.devices:
            try:
                self._tracing = block_trace.BlockTrace(node, sorted(self._layout.devices), directory)
            except CapabilityError as error:  # it could when the run was prepared
                self._layout.missing.append(f"nothing was traced: {error}")
        elif view.trace:
            self._layout.missing.append("nothing was traced: no block device is known to hold the files of what was loaded")

    def stop(self) -> None:
        """End the trace; nothing is read yet."""
        if self._tracing is not None:
            self._tracing.stop()

    def abandon(self) -> None:
        """The trial has failed: nothing will be asked."""
        if self._tracing is not None:
            self._tracing.abandon()

    def onto(self, played: Sequence[PhaseResult], readings: Sequence[SpoolReading]) -> list[PhaseResult]:
        """The phases with their I/O view."""
        self._read_trace()
        logs = {server: self._log(path) for server, path in self._layout.logs.items()}
        found = []
        for phase in played:
            around = near(readings, phase.start, phase.end)
            found.append(phase.model_copy(update={"io": self._view(phase, around, logs)}))
        return found

    def _read_trace(self) -> None:
        if self._tracing is None:
            return
        text = self._directory / TRACE
        try:
            self._trace = parse(self._tracing.lines(text))
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
            return self._node.read(path).decode(errors="replace").splitlines()
        except OSError:
            return []

    def _view(self, phase: PhaseResult, readings: Iterable[SpoolReading], logs: dict[str, list[str]]) -> IoView:
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
        devices += [one.model_copy(update={"series": inside.get(one.number, one.series)}) for one in self._layout.guests]
        found: list[Checkpoint] = []
        for server, lines in logs.items():
            found += checkpoints(lines, server, phase.start, phase.end)
        return IoView(
            devices=devices,
            checkpoints=found,
            trace=self._cost if self._tracing is not None else None,
            missing=list(self._layout.missing),
            **latency_fields(((x.at, x.latency) for x in self._logged(phase)), phase.start, phase.end, found),
        )

    def _logged(self, phase: PhaseResult) -> Iterator[Logged]:
        """The logged transactions of the phase's databases, from the files that its drivers left."""
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
        """Device → requests that were issued in the phase's window."""
        found: dict[str, list[BlockRequest]] = {}
        if self._tracing is not None:
            low, high = phase.start - self._tracing.clock, phase.end - self._tracing.clock
            for request in self._trace.requests:
                if low <= request.issued < high:
                    found.setdefault(request.device, []).append(request)
        return found


def insist_traceable(node: Node, wanted: bool) -> list[str]:
    """Before anything begins: raise CapabilityError where a trace is ``wanted`` and cannot be had; else a sentence on it."""
    if not wanted:
        return []
    block_trace.insist(node)
    return ["Block requests are traced by perf; what that costs is shown beside the results."]


def begin(node: Node, view: View, directory: Path) -> Watching:
    """Watch the devices below a view's servers and volumes; what cannot be seen is said in the view, and fails nothing."""
    return Watching(node, view, directory)
