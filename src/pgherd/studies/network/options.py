"""The complete options of a network run, and the trial of one number of streams."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.deployment import Deployment, Host, Link
from pgherd.model.load import Load
from pgherd.study.measurement_options import MeasuredOptions, MeasurementRequest
from pgherd.study.option import CLUSTER, option

STREAMS = (1, 2, 4, 8, 16)
MOST_STREAMS = 128
IDLE_RATE = 1_000_000
"""Bits/s of the trial that shows the round trip time of an idle link: few enough not to fill anything."""
IDLE = 0
"""Stands for the number of streams of that trial."""


def _ascending(streams: tuple[int, ...]) -> tuple[int, ...]:
    if not streams or min(streams) < 1 or max(streams) > MOST_STREAMS:
        raise ValueError(f"give numbers of streams from 1 to {MOST_STREAMS}, which is the most that iperf3 takes")
    return tuple(sorted({1, *streams}))


Streams = Annotated[tuple[int, ...], AfterValidator(_ascending)]
"""Numbers of parallel streams, ascending; one is always among them, since a replica has one."""


class NetworkOptions(MeasuredOptions):
    """Everything that a network run depends on. ``rate`` and ``delay`` of a link are those of namespaces; ``reverse``: the far ends
    send. Links between hosts of a cluster are measured one at a time, each alone."""

    links: tuple[Link, ...] = Field(min_length=1)
    streams: Streams = STREAMS
    reverse: bool = False
    window: int | None = Field(None, gt=0, description="bytes of the socket buffers; None: the kernel tunes them")
    congestion: str | None = None
    iperf3_version: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts between which all links are, in the cluster's order; none where this host is at the near end."""
        return tuple(dict.fromkeys(link.near for link in self.links if link.near is not None))

    def deployment(self, target: str) -> Deployment:
        """No server: the host and its links; of a link between two hosts those, and that link alone."""
        link = next(one for one in self.links if one.target == target)
        if link.near is None:
            return Deployment(hosts=(Host(name="local", cores=self.cores),), links=self.links)
        ends = tuple(Host(name=name, cores=self.cores) for name in (link.near, link.name))
        return Deployment(hosts=ends, links=(link,))

    def load(self, streams: int) -> Load:
        """iperf3's load with so many streams; IDLE: one stream at a trickle."""
        options = {"reverse": "1"} if self.reverse else {}
        options |= {"window": str(self.window)} if self.window is not None else {}
        options |= {"congestion": self.congestion} if self.congestion is not None else {}
        if streams == IDLE:
            options |= {"rate": str(IDLE_RATE)}
        return Load(driver="iperf3", clients=max(1, streams), options=options)


class NetworkRequest(MeasurementRequest):
    """Options of ``pgherd network`` as given on the command line or in a scenario. None: pgherd chooses."""

    to: tuple[str, ...] = option((), "Host running 'iperf3 --server' (repeatable).", metavar="HOST[:PORT]", repeated=True)
    streams: Streams = option(STREAMS, "Numbers of parallel streams; 1 is always included.", metavar="N,N,…", web=True, filled="1,2,4")
    reverse: bool = option(False, "Receive instead of send.")
    window: str | None = option(None, "TCP window size.", metavar="SIZE", computed="chosen by the kernel")
    congestion: str | None = option(None, "TCP congestion control.", metavar="NAME", computed="the system's")
    netns: bool = option(False, "Test between two network namespaces of this host (root).", web=True, filled="yes")
    netns_rate: str | None = option(None, "Limit the link to this bit rate, such as 200M.", metavar="RATE", web=True)
    netns_delay: str | None = option(None, "Add this delay each way, such as 5ms.", metavar="TIME", web=True)
    hosts: tuple[str, ...] = option((), "Cluster hosts to test.", CLUSTER, metavar="HOST,HOST,…", computed="all")
    port: int | None = option(None, "Port for iperf3 servers on a cluster's hosts.", CLUSTER, metavar="N", computed="5201", ge=1, le=65535)
