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
