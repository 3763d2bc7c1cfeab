"""What a user may say of a network study; everything has a default but where to measure to."""

from __future__ import annotations

from pydantic import Field

from pgherd.studies.network.options import STREAMS, Streams
from pgherd.studies.spread import SpreadRequest


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
