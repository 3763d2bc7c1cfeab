"""What the preparation of every study shares: its outcome, thresholds, the installation, copies of the user's files."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import paths
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Thresholds
from pgherd.model.load import Script
from pgherd.model.run import Surroundings
from pgherd.node.protocol import Node
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import Row
from pgherd.prepare.server_volumes import Holding
from pgherd.runner.session import RunSession
from pgherd.study.complete_options import StudyOptions
from pgherd.workloads.script import stage


@dataclass(frozen=True)
class Prepared:
    """A study that can be run on this host. ``disk`` and ``memory`` (bytes) are estimates of what it needs.

    ``confirm`` are those of the ``host_changes`` that touch more than pgherd's own: the user is asked before they are made.
    ``huge_pages``: size (bytes) → pages that are reserved at once at most. ``installation`` is None where no server and no
    pgbench is used; ``tools`` are other tools that are, with their versions. ``typed`` are block devices that are formatted: the
    user types the name of each. ``holds`` is what the servers put on volumes; of a run on several hosts, those of the fullest one.
    ``pace`` is how long a transaction of the user's own scripts took (seconds), where they were tried.
    """

    study: str
    options: Model
    surroundings: Surroundings
    thresholds: Thresholds
    facts: HostFacts
    installation: Installation | None
    choices: tuple[str, ...]
    settings: tuple[Row, ...]
    host_changes: tuple[str, ...]
    disk: int
    memory: int
    confirm: tuple[str, ...] = ()
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[str, ...] = ()
    holds: tuple[Holding, ...] = ()
    pace: float | None = None

    @property
    def postgres(self) -> dict[str, str]:
        """Bin directory → version of the installation, if there is one."""
        return {} if self.installation is None else {self.installation.bin: self.installation.version}

    def tool_versions(self) -> dict[str, str]:
        """Tool → version of all tools that a run of it uses."""
        pgbench = {} if self.installation is None else {"pgbench": self.installation.version}
        return {**pgbench, **self.tools, "python": platform.python_version()}


def most_pages(prepared: Iterable[Prepared]) -> dict[int, int]:
    """The huge pages that several preparations need which never run at once: size (bytes) → the most that one needs."""
    found: dict[int, int] = {}
    for one in prepared:
        for size, pages in one.huge_pages.items():
            found[size] = max(pages, found.get(size, 0))
    return found


def thresholds(assignments: tuple[str, ...]) -> Thresholds:
    """Thresholds with ``NAME=VALUE`` changes; raises UsageError for an unknown name or a value that is none."""
    known = Thresholds()
    changes: dict[str, float] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in Thresholds.model_fields:
            raise UsageError(f"there is no threshold '{name}'; there are {', '.join(Thresholds.model_fields)}")
        try:
            changes[name] = float(value)
            known = Thresholds.model_validate(known.model_dump() | changes)
        except ValueError:
            default = Thresholds.model_fields[name].default
            raise UsageError(f"--threshold {assignment}: '{value}' is not a value for {name}; its default is {default:g}") from None
    return known


def runnable(node: Node, bin_: str, version: str, session: RunSession) -> Installation:
    """The installation that a run was prepared with, where its account can execute it.

    Raises:
        UsageError: it is not there any more, or has another version now.
    """
    found = installations.choose(node, pg_bin=bin_)
    if found.version != version:
        raise UsageError(f"{bin_} is PostgreSQL {found.version} now, but the run was begun with {version}; start a new run")
    return installations.reachable_copy(node, found, session.account, str(paths.cache_dir()))


def with_inputs(node: Node, options: Model, inputs: Path) -> Model:
    """The options with the user's files replaced by copies in the run's directory, which are part of its record; those of a
    comparison's arms, and of variants, in a directory of each, or of the first that has the same files: they do not differ in them."""
    variants = options.variant_options() if isinstance(options, StudyOptions) else {}
    if isinstance(options, StudyOptions) and variants:
        homes: dict[str, Path] = {}
        copies = {
            name: with_inputs(node, variant, homes.setdefault(str(_files(variant)), inputs / name)) for name, variant in variants.items()
        }
        return options.with_variant_options(copies)
    scripts: tuple[Script, ...] = getattr(options, "scripts", ())
    init: str | None = getattr(options, "init", None)
    files = any(not script.source.startswith("builtin:") for script in scripts)
    if not files and init is None:
        return options
    inputs.mkdir(parents=True, exist_ok=True)
    changes: dict[str, object] = {"scripts": stage(node, scripts, str(inputs.resolve()))}
    if init is not None:
        kept = inputs.resolve() / f"init-{Path(init).name}"
        kept.write_bytes(node.read(init))
        changes["init"] = str(kept)
    return options.model_copy(update=changes)


def input_digests(inputs: Path) -> dict[str, str]:
    """Each of these copies, by its path below ``inputs``, and the start of its contents' SHA-256: what two runs are told apart by."""
    files = sorted(path for path in inputs.rglob("*") if path.is_file())
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[str(path.relative_to(inputs))] = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    return found


def _files(options: Model) -> object:
    """The user's files that options name, of all variants where there are some."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return [_files(variant) for variant in variants.values()]
    return getattr(options, "scripts", None), getattr(options, "init", None)
