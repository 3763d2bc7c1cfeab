"""Choice of pg_balloon for servers of a study: its build for their PostgreSQL, and the settings that enable it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import RuntimeName
from pgherd.model.errors import CapabilityError
from pgherd.postgres import huge_pages, pg_balloon
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import Workspace


@dataclass(frozen=True)
class BalloonChoice:
    """Balloon of some servers of a study: the settings that enable it, or the reason if it is unavailable, and messages."""

    settings: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    messages: tuple[str, ...] = ()


def choose_balloon(
    workspace: Workspace, installation: Installation, runtime: RuntimeName, host_has_huge_pages: bool, chosen: dict[str, str], part: str
) -> BalloonChoice:
    """Return the balloon for servers with the ``chosen`` settings. ``part`` names the part of the study that uses it in messages."""
    node, cache = workspace.node, str(workspace.cache)
    page_settings: dict[str, str] = {}
    messages: tuple[str, ...] = ()
    if huge_pages.requires_huge_pages(chosen):
        return BalloonChoice(unavailable=f"pg_balloon does not support huge pages, and huge_pages = {chosen['huge_pages']} is set")
    if not huge_pages.refuses_huge_pages(chosen):
        if host_has_huge_pages and not capabilities_of(runtime).own_kernel:  # a guest does not use the pages of the host
            messages = (
                f"Warning: this host has huge pages. {part.capitalize()} does not use them, because pg_balloon does not support them, but "
                "the others may; use --set huge_pages=off, so that only the balloon makes the difference.",
            )
        page_settings["huge_pages"] = "off"
    try:
        if workspace.dry and pg_balloon.find_balloon(node, installation, cache) is None:
            missing = pg_balloon.missing_to_build(node, installation)
            if missing:
                return BalloonChoice(unavailable=f"pg_balloon cannot be built: {missing}", messages=messages)
            return BalloonChoice(
                {"shared_preload_libraries": pg_balloon.NAME} | page_settings,
                messages=(*messages, f"pg_balloon will be built for {part}."),
            )
        library = pg_balloon.ensure_balloon(node, installation, cache, account=workspace.account)
    except CapabilityError as error:
        warning = f"Warning: {part} is not available: {error}."
        return BalloonChoice(unavailable=str(error), messages=(*messages, warning))
    with_balloon = pg_balloon.with_balloon(chosen | page_settings, library, {"enabled": "on"})
    return BalloonChoice({name: value for name, value in with_balloon.items() if chosen.get(name) != value}, messages=messages)
