"""What installations that are to be compared have by themselves: asked of each on a small server before the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.node.protocol import Node
from pgherd.postgres import defaults, installations
from pgherd.postgres.defaults import Defaults, Difference
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import Prepared


def between(node: Node, made: Mapping[str, Prepared]) -> dict[str, dict[str, str]]:
    """What differs between the installations of several variants by itself: name → variant → value. Somebody else's server is not
    asked. Raises as ``differences``."""
    names = list(made)
    first, options = made[names[0]], [one.options for one in made.values()]
    installed = {name: one.installation for name, one in made.items() if one.installation is not None}
    if len(installed) < len(names) or any(getattr(one, "server", None) is not None or not hasattr(one, "settings") for one in options):
        return {}
    found = differences(
        node,
        installed[names[0]],
        {name: installed[name] for name in names[1:]},
        account=first.surroundings.run_as,
        checksums=getattr(options[0], "checksums", None),
        settings={setting for one in options for setting in getattr(one, "settings", {})},
    )
    rows: dict[str, dict[str, str]] = {}
    for name, differing in found.items():
        for row in differing:
            rows.setdefault(row.name, dict.fromkeys(names, row.one))[name] = row.other
    return rows


def sentences(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The same in a sentence; none where nothing differs."""
    said = [f"{name} is {', '.join(f'{value} in {variant}' for variant, value in values.items())}" for name, values in found.items()]
    return [f"What differs by itself, though nobody has set it: {'; '.join(said)}."] if said else []


def differences(
    node: Node,
    baseline: Installation,
    others: Mapping[str, Installation],
    *,
    account: str | None,
    checksums: bool | None = None,
    settings: Iterable[str] = (),
) -> dict[str, tuple[Difference, ...]]:
    """For each of ``others`` (by any name) what differs from the baseline by itself; nothing where it is the same installation.

    ``account`` is what servers run as, ``checksums`` as their clusters will have them, ``settings`` names that are set on all
    of them and so differ in no default. Each installation that differs costs about two seconds; nothing stays.

    Raises:
        CapabilityError: an installation cannot be run by the account.
        TrialError: its server does not start.
    """
    if all(other.bin == baseline.bin for other in others.values()):
        return dict.fromkeys(others, ())
    names = tuple(settings)
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        work = paths.work_tree(node, journal, "prepare", account)
        sockets = Path(paths.socket_root(node, journal)) / "s"
        node.make_dir(str(sockets), mode=0o700, user=account)
        known: dict[str, Defaults] = {}
        for one in (baseline, *others.values()):
            if one.bin not in known:
                usable = installations.reachable_copy(node, one, account, str(paths.cache_dir()))
                known[one.bin] = defaults.of(
                    node, usable, account=account, directory=str(work), socket_dir=str(sockets), checksums=checksums
                )
        return {name: defaults.differing(known[baseline.bin], known[other.bin], names) for name, other in others.items()}
    finally:
        journal.close()
