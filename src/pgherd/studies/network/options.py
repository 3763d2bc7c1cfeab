"""Complete options of a network run, the load of each number of streams, and the trials in their order.

Each repeat is a block with every number of streams on every link, shuffled. Other traffic on the same links then affects all numbers of
streams alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment, Host, Link
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import Duration, Size
from pgherd.study import trial_schedule
from pgherd.study.option import CLUSTER, option
from pgherd.study.shared_options import MeasuredOptions, MeasurementRequest
from pgherd.study.trial_schedule import Point, SchedulePlan

STREAMS = (1, 2, 4, 8, 16)
MAX_STREAMS = 128
IDLE_RATE = 1_000_000
"""Bits per second of the trial that measures the round trip time of an idle link. The rate is too low to fill a queue."""
IDLE_LENGTH = 512
"""Bytes of a write of this trial, of which there are 244 a second. iperf3's default of 128 KiB would queue on a slow link. Above 523 bytes
older kernels take equal segments for full ones, and delay their acknowledgement."""
IDLE = 0
"""Number of streams that identifies the trial of an idle link."""


def _ascending(streams: tuple[int, ...]) -> tuple[int, ...]:
    if not streams or min(streams) < 1 or max(streams) > MAX_STREAMS:
        raise ValueError(f"give numbers of streams from 1 to {MAX_STREAMS}, the maximum of iperf3")
    return tuple(sorted({1, *streams}))


Streams = Annotated[tuple[int, ...], AfterValidator(_ascending)]
"""Numbers of parallel streams in ascending order. 1 is always included, because a replica uses one stream."""


class NetworkOptions(MeasuredOptions):
    """Complete options of a network run.

    ``rate`` and ``delay`` of a link apply to namespaces. With ``reverse`` the far ends send. Links between hosts of a cluster are
    measured one at a time.
    """

    links: tuple[Link, ...] = Field(min_length=1)
    streams: Streams = STREAMS
    reverse: bool = False
    window: int | None = Field(None, gt=0, description="size of the socket buffers in bytes; None: tuned by the kernel")
    congestion: str | None = None
    iperf3_version: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts at the near ends of links, in the order of the cluster. It is empty if this host is the near end."""
        return tuple(dict.fromkeys(link.near for link in self.links if link.near is not None))

    def deployment(self, target: str) -> Deployment:
        """Return the deployment without a server: this host and its links, or the two hosts of a cluster's link and that link."""
        link = next(link for link in self.links if link.target == target)
        if link.near is None:
            return Deployment(hosts=(Host(name="local", cores=self.host_cores),), links=self.links)
        ends = tuple(Host(name=name, cores=self.host_cores) for name in (link.near, link.name))
        return Deployment(hosts=ends, links=(link,))

    def load(self, streams: int) -> Load:
        """Return the iperf3 load with ``streams`` streams. IDLE is one stream of small writes at IDLE_RATE."""
        options = {"reverse": "1"} if self.reverse else {}
        options |= {"window": str(self.window)} if self.window is not None else {}
        options |= {"congestion": self.congestion} if self.congestion is not None else {}
        if streams == IDLE:
            options |= {"rate": str(IDLE_RATE), "length": str(IDLE_LENGTH)}
        return Load(driver="iperf3", clients=max(1, streams), options=options)


class NetworkRequest(MeasurementRequest):
    """Options of ``pgherd network`` as given on the command line or in a scenario. None: pgherd chooses."""

    to: tuple[str, ...] = option((), "Host running 'iperf3 --server' (repeatable).", metavar="HOST[:PORT]", repeated=True)
    streams: Streams = option(STREAMS, "Numbers of parallel streams; 1 is always included.", metavar="N,N,…", web=True, filled="1,2,4")
    reverse: bool = option(False, "Receive instead of send.")
    window: Size | None = option(None, "TCP window size.", metavar="SIZE", computed="chosen by the kernel")
    congestion: str | None = option(None, "TCP congestion control.", metavar="NAME", computed="the system's")
    netns: bool = option(False, "Test between two network namespaces of this host (root).", web=True, filled="yes")
    netns_rate: str | None = option(None, "Limit the link to this bit rate, such as 200M.", metavar="RATE", web=True)
    netns_delay: Duration | None = option(None, "Add this delay each way, such as 5ms.", metavar="TIME", web=True)
    hosts: tuple[str, ...] = option((), "Cluster hosts to test.", CLUSTER, metavar="HOST,HOST,…", computed="all")
    port: int | None = option(None, "Port for iperf3 servers on a cluster's hosts.", CLUSTER, metavar="N", computed="5201", ge=1, le=65535)


def propose(options: NetworkOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: NetworkOptions) -> SchedulePlan:
    """Return the planned trials of a run and the rules for more."""

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"link": link.target, "streams": streams} for link in options.links for streams in (IDLE, *options.streams)]
    blocks = []
    for repeat in range(options.repeats):
        rng = random.Random(f"order {options.seed} {repeat}")
        blocks.append([build(point, repeat, "planned") for point in rng.sample(points, len(points))])
    return SchedulePlan(blocks, points, build, lambda point: options.repeats)


def _trial(options: NetworkOptions, point: Point, repeat: int, reason: str) -> Trial:
    loads = {str(point["link"]): options.load(int(point["streams"]))}
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=loads)
    deployment = options.deployment(str(point["link"]))
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=deployment, phases=(phase,))
