"""Address of a cluster: its name or its scheduler's address, and the certificates by which its members authenticate each
other.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pgherd.cluster import certificates, cluster_file
from pgherd.cluster.ssh import joined_name
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from distributed import Security

TLS_DIRECTORY = "PGHERD_CLUSTER_CERTS"
"""Environment variable for the directory of ``authority.pem`` and ``member.pem`` of a scheduler that was not started
here.
"""


@dataclass(frozen=True)
class SchedulerAddress:
    """Scheduler's address, directory of the certificates (None: Dask's settings, or none), and the hosts in order.

    ``hosts`` is empty for a scheduler that an external launcher started. Then its workers are the hosts.
    """

    address: str
    tls: Path | None = None
    hosts: tuple[str, ...] = ()


def find(cluster: str, tls: Path | None = None) -> SchedulerAddress:
    """Return a cluster by the address of its scheduler, or by its name if ``cluster start`` has started it here.

    ``tls`` is the directory of the certificates for any other address; by default that in TLS_DIRECTORY. Raises
    UsageError.
    """
    if "://" not in cluster:
        saved = cluster_file.load(cluster)
        if saved is None:
            names = ", ".join(cluster_file.names()) or "none"
            raise UsageError(
                f"no cluster called '{cluster}' has been started here (started: {names}); give the address of a Dask "
                "scheduler (tls://HOST:PORT), or start one with 'pgherd cluster start --hosts …'"
            )
        return SchedulerAddress(saved.address, cluster_file.directory(cluster), tuple(joined_name(host.name) for host in saved.hosts))
    check(cluster)
    for name in cluster_file.names():
        saved = cluster_file.load(name)
        if saved is not None and saved.address == cluster and tls is None:
            return find(name)
    certificate_directory = os.environ.get(TLS_DIRECTORY)
    return SchedulerAddress(cluster, tls or (Path(certificate_directory) if certificate_directory else None))


def check(address: str) -> None:
    """Require a complete address with TLS. Raises UsageError."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or port is None:
        raise UsageError(f"'{address}' is not a Dask scheduler's address; write tls://HOST:PORT")
    if not is_encrypted(address):
        raise UsageError(
            f"{address} is not encrypted: anyone who can reach it, on this machine each of its users, can run programs in your name. "
            "Use a tls:// address, as 'pgherd cluster start' does, or start scheduler and workers with Dask's TLS settings"
        )


def check_workers(scheduler: str, workers: Iterable[str]) -> None:
    """Require TLS to workers, which are connected directly. Raises UsageError."""
    unencrypted = [worker for worker in workers if not is_encrypted(worker)]
    if unencrypted:
        more = f" and {len(unencrypted) - 1} more" if len(unencrypted) > 1 else ""
        raise UsageError(
            f"the worker {unencrypted[0]}{more} of the scheduler {scheduler} is not encrypted: anyone who can reach it can run programs "
            "there. Start scheduler and workers with Dask's TLS settings, and give the tls:// address"
        )


def is_encrypted(address: str) -> bool:
    """Return whether an address is of TLS.

    Without it, any user of a machine can listen on a port of its loopback, or connect to one, and both ends run what the other sends.
    Dask has no Unix sockets, whose directory could be private.
    """
    return urlsplit(address).scheme == "tls"


def is_loopback(host: str) -> bool:
    """Return whether an address or name is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def security(place: SchedulerAddress) -> Security:
    """Return Dask's security settings for the driver.

    Raises UsageError if certificates are missing or invalid.
    """
    from distributed import Security

    if place.tls is None:
        settings: Any = Security(require_encryption=True)
        if not (settings.tls_ca_file and settings.tls_client_cert):
            raise UsageError(
                f"{place.address} requires certificates: set the directory of {certificates.AUTHORITY} and {certificates.MEMBER} in "
                f"{TLS_DIRECTORY}, or set Dask's distributed.comm.tls.ca-file and .client.cert"
            )
        checked: Security = settings
        return checked
    return member_security(place.tls)


def member_security(directory: Path) -> Security:
    """Return security settings of a member with certificates in a directory. Raises UsageError."""
    import ssl

    from distributed import Security

    authority, member = directory / certificates.AUTHORITY, directory / certificates.MEMBER
    missing = [str(path) for path in (authority, member) if not path.is_file()]
    if missing:
        raise UsageError(f"missing {' and '.join(missing)}, required for a cluster with TLS")
    roles = {f"tls_{role}_cert": str(member) for role in ("client", "scheduler", "worker")}
    settings = Security(require_encryption=True, tls_ca_file=str(authority), tls_min_version=ssl.TLSVersion.TLSv1_3, **roles)
    try:
        settings.get_connection_args("client")
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates in {directory} cannot be used: {error}") from error
    return settings


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def check_name(name: str) -> str:
    """Require a valid name of a cluster, which is also that of a directory. Raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is not a valid name for a cluster: use lower-case letters, digits and hyphens, at most 31")
    return name
