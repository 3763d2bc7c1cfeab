"""What a Prometheus server is asked about an external server, and what it had."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from pgherd.model.base import Model

NODE_CPU = "node_cpu_seconds_total"
NODE_READS = "node_disk_reads_completed_total"
CONTAINER_CPU = "container_cpu_usage_seconds_total"
CONTAINER_OOM = "container_oom_events_total"
"""Series that checks need."""


class PrometheusSource(Model):
    """Prometheus server, and the series in it that are of one external server.

    ``label`` has one of ``values`` (a regular expression) in the series of the server's host. ``container_id`` is a regular expression
    of cAdvisor's label ``id``. None: the container is unknown.
    """

    url: str
    label: str = Field("instance", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    values: str
    container_id: str | None = None

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        return checked_url(url)

    @property
    def text(self) -> str:
        """The selected host, for messages."""
        return f'{self.label}=~"{self.values}"'


def checked_url(url: str) -> str:
    """Return the address of a Prometheus server. Raises ValueError."""
    parts = re.fullmatch(r"https?://(?P<user>[^/@]*@)?[^/@\s?#]+(/[^\s?#@]*)?", url)
    if parts is not None and parts["user"]:
        raise ValueError("the address contains a user or a password, which would be recorded; leave them out")
    if parts is None:
        raise ValueError("this is not the address of a Prometheus server; write it as http://HOST:9090")
    return url


def values_of(hosts: tuple[str, ...]) -> str:
    """Return a regular expression of these host names, with or without a port."""
    return f"({'|'.join(re.escape(host) for host in hosts)})(:[0-9]+)?"


class PrometheusView(Model):
    """Samples that Prometheus had of one external server in a phase's window.

    ``step`` is the median time between samples, and gaps are times of more than 1.5 steps without one, in seconds. ``series`` were
    used, ``sparse`` had fewer than two samples in the window of some phase, ``missing`` did not exist. ``clock_ahead`` is the lead of
    Prometheus' clock over this host's, which was corrected. ``seconds`` is the duration of the requests.
    """

    container: str
    url: str
    match: str
    step: float | None
    gaps: int
    longest_gap: float | None
    series: list[str]
    sparse: list[str]
    missing: list[str]
    clock_ahead: float
    seconds: float
