"""What a user may say of a scaling study; everything has a default, which completing the request fills in."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.load import ClientPlace
from pgherd.studies.databases import DatabaseRequest


class ScalingRequest(DatabaseRequest):
    """Options of ``pgherd scaling`` as given on the command line or in a scenario, beside those of the databases."""

    clients: tuple[int, ...] | None = Field(None, description="numbers of clients to measure; these and no others")
    # The container is the server's: what a transaction costs it is seen without pgbench's part. (Linux 6.18 has also been seen to
    # run nothing else for tens of seconds while both, in one control group without a quota, kept all CPUs busy.)
    client_place: ClientPlace = Field("outside", description="whether pgbench runs inside the database's container")
    variant: tuple[str, ...] = Field((), description="what is compared, NAME:key=value,key=value; ratios are to the first")
