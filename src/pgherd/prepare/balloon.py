"""Choice of pg_balloon for servers of a study: its build for their PostgreSQL, and the settings that enable it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgherd.model.errors import CapabilityError
from pgherd.postgres import pg_balloon
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import Workspace


@dataclass(frozen=True)
class BalloonChoice:
    """Balloon of some servers of a study: the settings that enable it, or the reason if it is unavailable, and messages."""

    settings: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    messages: tuple[str, ...] = ()


def choose_balloon(workspace: Workspace, installation: Installation, chosen: dict[str, str], part: str) -> BalloonChoice:
    """Return the balloon for servers with the ``chosen`` settings, which refuse huge pages: pg_balloon does not support them.

    ``part`` names the part of the study that uses it in messages.
    """
    node, cache = workspace.node, str(workspace.cache)
    try:
        if workspace.dry and pg_balloon.find_balloon(node, installation, cache) is None:
            missing = pg_balloon.missing_to_build(node, installation)
            if missing:
                return BalloonChoice(unavailable=f"pg_balloon cannot be built: {missing}")
            return BalloonChoice({"shared_preload_libraries": pg_balloon.NAME}, messages=(f"pg_balloon will be built for {part}.",))
        library = pg_balloon.ensure_balloon(node, installation, cache, account=workspace.account)
    except CapabilityError as error:
        return BalloonChoice(unavailable=str(error), messages=(f"Warning: {part} is not available: {error}.",))
    with_balloon = pg_balloon.with_balloon(chosen, library, {"enabled": "on"})
    return BalloonChoice({name: value for name, value in with_balloon.items() if chosen.get(name) != value})
