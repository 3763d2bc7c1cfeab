"""Data checksums of a run's servers: as asked, else on, since every version can have them and the newest ones do by themselves."""

from __future__ import annotations

from pgherd.postgres import instance
from pgherd.study.database_options import DatabaseRequest


def chosen(asked: DatabaseRequest) -> bool:
    """Whether the servers have them: unless asked otherwise yes, so that versions compare."""
    return True if asked.data_checksums is None else asked.data_checksums


def words(asked: DatabaseRequest, major: int) -> list[str]:
    """A sentence where they are not as that version's initdb has them by itself."""
    own = instance.checksums_default(major)
    if chosen(asked) == own:
        return []
    why = "as asked" if asked.data_checksums is not None else "the same for all versions, as PostgreSQL has them by itself since 18"
    told = {True: "on", False: "off"}
    return [f"Data checksums {told[chosen(asked)]}: {why}; {major} has them {told[own]} by itself."]
