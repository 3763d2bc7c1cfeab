"""The complete options of a network run, and the trial of one number of streams."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.deployment import Deployment, Host, Link
from pgherd.model.load import Load
from pgherd.study.cluster_options import SpreadRequest
from pgherd.study.measurement_options import MeasuredOptions

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


class NetworkRequest(SpreadRequest):
    """Options of ``pgherd network`` as given on the command line or in a scenario. None: pgherd chooses, and says what."""

    to: tuple[str, ...] = Field((), description="where an iperf3 server answers: HOST or HOST:PORT")
    port: int | None = Field(None, ge=1, le=65535, description="of a cluster: where the hosts' iperf3 servers listen in their trials")
    namespaces: bool = Field(False, description="between two network namespaces of this host")
    limit: str | None = Field(None, description="namespaces: bits per second that the link lets through, such as 200M")
    delay: str | None = Field(None, description="namespaces: time that every packet is held up, each way")
    between: tuple[str, ...] = Field((), description="of a cluster: the hosts between which it is measured; all by default")
    streams: Streams = Field(STREAMS, description="numbers of parallel TCP streams")
    reverse: bool = Field(False, description="the far end sends")
    window: str | None = Field(None, description="size of the socket buffers; the kernel tunes them otherwise")
    congestion: str | None = Field(None, description="TCP's congestion control algorithm")
    repeats: int | None = Field(None, ge=1, description="trials of each number of streams")
    seconds: str | None = Field(None, description="measured period of each trial")
    ramp: str | None = Field(None, description="ramp-up before it, not counted")
    budget: str | None = Field(None, description="time for all trials; reruns of tainted trials fit into it too")
    seed: int | None = Field(None, ge=0, description="seed of the order of trials")
    cores: float | None = Field(None, gt=0, description="cores of this host that the run reserves")
    run_as: str | None = Field(None, description="the account that iperf3 runs as (root only)")
    threshold: tuple[str, ...] = Field((), description="change a verdict's threshold, NAME=VALUE")
