"""Where a cluster is: its name or its scheduler's address, and the certificates with which its members know each other."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pgherd.cluster import certificates, record, versions
from pgherd.cluster.ssh import joined_name
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from distributed import Security

SCHEMES = ("tcp", "tls")
TLS_DIRECTORY = "PGHERD_CLUSTER_TLS"
"""Environment variable that names the directory of ``authority.pem`` and ``member.pem`` for a scheduler that was not started here."""


@dataclass(frozen=True)
class Place:
    """A scheduler's address, the directory of the certificates (None: Dask's own settings, or none), and the hosts in their order.

    ``hosts`` is empty for a scheduler that somebody else's launcher started: then the workers that are there are the hosts.
    """

    address: str
    tls: Path | None = None
    hosts: tuple[str, ...] = ()

    @property
    def encrypted(self) -> bool:
        """Whether it is a TLS address."""
        return self.address.startswith("tls://")


def find(cluster: str, tls: Path | None = None) -> Place:
    """The cluster that was meant: the address of a scheduler, or the name of a cluster that ``cluster start`` has started here.

    ``tls`` is the directory of the certificates for an address that is not of such a cluster; else TLS_DIRECTORY. Raises UsageError.
    """
    if "://" not in cluster:
        known = record.load(cluster)
        if known is None:
            names = record.names()
            there = f"here is {', '.join(names)}" if names else "none is"
            raise UsageError(
                f"no cluster called '{cluster}' has been started here, {there}; give the address of a Dask scheduler (tls://HOST:PORT), "
                "or start one with 'pgherd cluster start --hosts …'"
            )
        return Place(known.address, record.directory(cluster), tuple(joined_name(host.name) for host in known.hosts))
    check(cluster)
    for name in record.names():
        known = record.load(name)
        if known is not None and known.address == cluster and tls is None:
            return find(name)
    named = os.environ.get(TLS_DIRECTORY)
    return Place(cluster, tls or (Path(named) if named else None))


def check(address: str) -> None:
    """Insist on a whole address, and on TLS unless the scheduler is on this machine; raises UsageError."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in SCHEMES or not parts.hostname or port is None:
        raise UsageError(f"'{address}' is not a Dask scheduler's address; write tls://HOST:PORT (tcp:// on this machine only)")
    if not is_private(address):
        raise UsageError(
            f"{address} is neither encrypted nor on this machine: whoever reaches it may run programs on every host. Use a tls:// address, "
            "as 'pgherd cluster start' makes, or Dask's own TLS settings"
        )


def check_workers(scheduler: str, workers: Iterable[str]) -> None:
    """Insist on TLS to workers, too, unless they are on this machine: each is talked to directly, whatever the way to the scheduler was
    (a port of it may be forwarded here, or it may listen on every address). Raises UsageError."""
    open_ = [worker for worker in workers if not is_private(worker)]
    if open_:
        more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        raise UsageError(
            f"the scheduler {scheduler} is on this machine, but its worker {open_[0]}{more} listens beyond it, without encryption: whoever "
            "reaches it may run programs there. Start scheduler and workers with Dask's own TLS settings, and give the tls:// address"
        )


def is_private(address: str) -> bool:
    """Whether nobody else can listen to what is said to an address: by TLS, or since it does not leave this machine."""
    parts = urlsplit(address)
    return parts.scheme == "tls" or is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def security(place: Place) -> Security:
    """Dask's security settings for the driver. Raises UsageError when certificates are missing or wrong, CapabilityError without Dask."""
    versions.require_extra()
    from distributed import Security

    if not place.encrypted:
        return Security(require_encryption=False)
    if place.tls is None:
        settings: Any = Security(require_encryption=True)
        if not (settings.tls_ca_file and settings.tls_client_cert):
            raise UsageError(
                f"{place.address} wants certificates: name the directory of {certificates.AUTHORITY} and {certificates.MEMBER} in "
                f"{TLS_DIRECTORY}, or set Dask's distributed.comm.tls.ca-file and .client.cert"
            )
        found: Security = settings
        return found
    return member_security(place.tls)


def member_security(directory: Path) -> Security:
    """Security settings of any member whose certificates lie in a directory; raises UsageError."""
    versions.require_extra()
    import ssl

    from distributed import Security

    authority, member = directory / certificates.AUTHORITY, directory / certificates.MEMBER
    missing = [str(path) for path in (authority, member) if not path.is_file()]
    if missing:
        raise UsageError(f"there is no {' and no '.join(missing)}, which a cluster over TLS needs")
    roles = {f"tls_{role}_cert": str(member) for role in ("client", "scheduler", "worker")}
    made = Security(require_encryption=True, tls_ca_file=str(authority), tls_min_version=ssl.TLSVersion.TLSv1_3, **roles)
    try:
        made.get_connection_args("client")
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates in {directory} cannot be used: {error}") from error
    return made


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def check_name(name: str) -> str:
    """A cluster's name, which becomes that of a directory; raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is no name for a cluster: use small letters, digits and hyphens, 31 at most")
    return name
