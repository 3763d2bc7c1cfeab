"""Defaults of the PostgreSQL installations that a run compares, read from a small server of each before the comparison."""

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


def between(node: Node, prepared: Mapping[str, Prepared]) -> dict[str, dict[str, str]]:
    """Return the defaults that differ between the installations of variants: name → variant → value.

    The result is empty if a variant uses an external server. Raises as ``differences``.
    """
    variants = list(prepared)
    first, options = prepared[variants[0]], [study.options for study in prepared.values()]
    installed = {variant: study.installation for variant, study in prepared.items() if study.installation is not None}
    if len(installed) < len(variants) or any(
        getattr(study_options, "server", None) is not None or not hasattr(study_options, "settings") for study_options in options
    ):
        return {}
    by_variant = differences(
        node,
        installed[variants[0]],
        {variant: installed[variant] for variant in variants[1:]},
        account=first.surroundings.run_as,
        checksums=getattr(options[0], "checksums", None),
        settings={setting for study_options in options for setting in getattr(study_options, "settings", {})},
    )
    rows: dict[str, dict[str, str]] = {}
    for variant, differing in by_variant.items():
        for row in differing:
            rows.setdefault(row.name, dict.fromkeys(variants, row.one))[variant] = row.other
    return rows


def sentences(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Describe these differences in a message. Return an empty list if there are none."""
    texts = [f"{name} is {', '.join(f'{value} in {variant}' for variant, value in values.items())}" for name, values in found.items()]
    return [f"Defaults that differ between versions: {'; '.join(texts)}."] if texts else []


def differences(
    node: Node,
    baseline: Installation,
    others: Mapping[str, Installation],
    *,
    account: str | None,
    checksums: bool | None = None,
    settings: Iterable[str] = (),
) -> dict[str, tuple[Difference, ...]]:
    """Return the defaults in which each of ``others`` (by name) differs from the baseline. None differ for the same installation.

    ``account`` is the operating system user of the servers. ``checksums`` is the choice for their data directories. ``settings`` are
    names that the run sets, so their defaults are ignored. Each distinct installation takes about 2 s. All files are removed.

    Raises:
        CapabilityError: the user cannot run an installation.
        TrialError: a server does not start.
    """
    if all(other.bin == baseline.bin for other in others.values()):
        return dict.fromkeys(others, ())
    names = tuple(settings)
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        work = paths.work_tree(node, journal, "prepare", account)
        sockets = Path(paths.socket_root(node, journal)) / "s"
        node.make_dir(str(sockets), mode=0o700, user=account)
        by_directory: dict[str, Defaults] = {}
        for installation in (baseline, *others.values()):
            if installation.bin not in by_directory:
                usable = installations.reachable_copy(node, installation, account, str(paths.cache_dir()))
                by_directory[installation.bin] = defaults.of(
                    node, usable, account=account, directory=str(work), socket_dir=str(sockets), checksums=checksums
                )
        return {name: defaults.differing(by_directory[baseline.bin], by_directory[other.bin], names) for name, other in others.items()}
    finally:
        journal.close()
