"""Data checksums of a run's servers. The default is on, because every version supports them and PostgreSQL 18 enables them."""

from __future__ import annotations

from pgherd.postgres import instance
from pgherd.study.database_options import DatabaseRequest


def chosen(asked: DatabaseRequest) -> bool:
    """Return True if the servers use data checksums. The same default for all versions makes them comparable."""
    return True if asked.data_checksums is None else asked.data_checksums


def words(asked: DatabaseRequest, major: int) -> list[str]:
    """Return a message if the choice differs from the default of initdb in this ``major`` version."""
    default = instance.checksums_default(major)
    if chosen(asked) == default:
        return []
    reason = "as requested" if asked.data_checksums is not None else "the same for all versions, as PostgreSQL 18 and later by default"
    state = {True: "on", False: "off"}
    return [f"Data checksums {state[chosen(asked)]}: {reason}. The default of PostgreSQL {major} is {state[default]}."]
