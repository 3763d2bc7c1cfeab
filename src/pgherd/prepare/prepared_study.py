"""Shared parts of every study's preparation: its result, its workspace, thresholds, the installation, copies of the user's files."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.model.analysis import Thresholds
from pgherd.model.base import Model
from pgherd.model.deployment import Volume
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.run import RunEnvironment
from pgherd.model.units import parse_number
from pgherd.node.files import make_private
from pgherd.node.process import require_open_files
from pgherd.node.protocol import Node
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import SettingRow
from pgherd.prepare.tasks import require_processes
from pgherd.runner.session import RunSession
from pgherd.study.shared_options import StudyOptions
from pgherd.study.study import study_of
from pgherd.workloads.user_script import stage


@dataclass(frozen=True)
class VolumeContents:
    """Contents of one volume.

    ``words`` describes them. ``bytes`` is their estimated size for all servers of one host together.
    """

    volume: Volume
    words: str
    bytes: int

    def part(self, servers: int, of: int) -> VolumeContents:
        """Return the contents of ``servers`` servers, if this volume has those of ``of`` servers."""
        return replace(self, bytes=-(-self.bytes * servers // of))


@dataclass(frozen=True)
class PreparedStudy:
    """Study that is ready to run on this host.

    ``disk`` and ``memory`` are its estimated needs in bytes. ``confirm`` are the ``host_changes`` that affect more than pgherd's files
    and processes. The user must confirm them. ``huge_pages`` maps a page size (bytes) to the maximum number of pages reserved at once.
    ``installation`` is None if the study uses neither a server nor pgbench. ``tools`` are the other tools with their versions.
    ``typed`` are block devices to format. The user must type the name of each. ``holds`` are the contents of volumes, on several hosts
    those of the fullest host. ``pace`` is the mean duration (s) of a transaction of the user's scripts, if they were tried.
    """

    study: str
    options: Model
    environment: RunEnvironment
    thresholds: Thresholds
    facts: HostFacts
    installation: Installation | None
    defaults_chosen: tuple[str, ...]
    settings: tuple[SettingRow, ...]
    host_changes: tuple[str, ...]
    disk: int
    memory: int
    confirm: tuple[str, ...] = ()
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    typed: tuple[str, ...] = ()
    holds: tuple[VolumeContents, ...] = ()
    pace: float | None = None

    @property
    def postgres(self) -> dict[str, str]:
        """Return bin directory → build of the installation. It is empty without an installation."""
        return {} if self.installation is None else {self.installation.bin: self.installation.build}

    def tool_versions(self) -> dict[str, str]:
        """Return tool → version for all tools of a run."""
        pgbench = {} if self.installation is None else {"pgbench": self.installation.version}
        return {**pgbench, **self.tools, "python": platform.python_version()}


def most_pages(prepared: Iterable[PreparedStudy]) -> dict[int, int]:
    """Return the huge pages for preparations that never run at once: size (bytes) → the maximum of one preparation."""
    maxima: dict[int, int] = {}
    for preparation in prepared:
        for size, pages in preparation.huge_pages.items():
            maxima[size] = max(pages, maxima.get(size, 0))
    return maxima


def thresholds(assignments: tuple[str, ...]) -> Thresholds:
    """Return the thresholds with ``NAME=VALUE`` changes. Raises UsageError for an unknown name or an invalid value."""
    changed = Thresholds()
    changes: dict[str, float] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in Thresholds.model_fields:
            raise UsageError(f"--threshold {assignment}: there is no threshold '{name}'; use one of {', '.join(Thresholds.model_fields)}")
        try:
            changes[name] = _threshold(value)
            changed = Thresholds.model_validate(changed.model_dump() | changes)
        except ValueError:
            default = Thresholds.model_fields[name].default
            raise UsageError(f"--threshold {assignment}: '{value}' is not a value for {name}; its default is {default:g}") from None
    return changed


def _threshold(text: str) -> float:
    """Return a number, or a percentage as a share. A comma is refused, because it may group digits or be a decimal mark."""
    number = None if "," in text else parse_number(text.removesuffix("%"))
    if number is None:
        raise ValueError
    return number / 100 if text.endswith("%") else number


def runnable(node: Node, bin_: str, build: str, session: RunSession) -> Installation:
    """Return the installation of a prepared run, in a directory that the run's user can execute.

    ``build`` is the recorded one. A run on a cluster, or of a former pgherd, has recorded the version only.

    Raises:
        UsageError: the installation was removed, or has another build now.
    """
    installation = installations.choose(node, pg_bin=bin_)
    if build not in (installation.build, installation.version):
        raise UsageError(f"{bin_} is PostgreSQL {installation.build} now, but the run started with {build}; start a new run")
    return installations.reachable_copy(node, installation, session.account, str(paths.cache_dir()))


def keep_inputs(node: Node, options: Model, inputs: Path) -> tuple[Model, dict[str, str]]:
    """Copy the user's files to ``inputs`` in the run directory. Return options that name the copies, and the digest of each copy.

    Documents of the options are written there too.
    """
    kept = with_inputs(node, options, inputs)
    for name, text in options.documents().items() if isinstance(options, StudyOptions) else ():
        inputs.mkdir(parents=True, exist_ok=True)
        (inputs / name).write_text(text)
    if inputs.exists():
        make_private(inputs)  # the servers' user gets other copies
    return kept, input_digests(inputs)


def with_inputs(node: Node, options: Model, inputs: Path) -> Model:
    """Copy the user's files to ``inputs`` in the run directory, as part of its record, and return options that name the copies.

    Each variant has a subdirectory. Variants with the same files share the subdirectory of the first one.
    """
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
        stored = inputs.resolve() / f"init-{Path(init).name}"
        stored.write_bytes(node.read(init))
        changes["init"] = str(stored)
    return options.model_copy(update=changes)


def input_digests(inputs: Path) -> dict[str, str]:
    """Return the start of the SHA-256 of each copy, by its path below ``inputs``. It shows whether two runs use the same files."""
    files = sorted(path for path in inputs.rglob("*") if path.is_file())
    digests = {}
    for path in files:
        with path.open("rb") as file:
            digests[str(path.relative_to(inputs))] = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    return digests


def _files(options: Model) -> object:
    """Return the user's files in the options, or in the options of all variants."""
    if isinstance(options, StudyOptions) and (variants := options.variant_options()):
        return [_files(variant) for variant in variants.values()]
    return getattr(options, "scripts", None), getattr(options, "init", None)


def prepare(node: Node, name: str, request: Model, *, dry: bool = False) -> PreparedStudy:
    """Complete and check a request. With ``dry`` no database is loaded.

    Raises:
        UsageError: an option is wrong, or the request needs more than the host has.
        CapabilityError: this host lacks a feature, or a limit of processes or open files is too low.
    """
    study = study_of(name)
    try:
        prepared: PreparedStudy = study.module("prepare").prepare(node, request, dry)
    except ValidationError as error:
        raise _usage_error(error, request, study.options) or error from None
    trials = study.propose(prepared.options, []).trials
    require_processes(node, trials, getattr(request, "run_as", None))
    for trial in trials:
        in_guests = any(container.runtime == "vm" for _, container in trial.deployment.containers())
        for load in (load for phase in trial.phases for load in phase.loads.values()):
            if load.client_placement == "outside" or not in_guests:
                require_open_files(load.open_files, load.driver)
    return prepared


def _usage_error(error: ValidationError, request: Model, options: type[Model]) -> UsageError | None:
    """Return the error for a value that the options reject, such as a duration of 0. None if the user did not give the value."""
    fault = error.errors()[0]
    field = str(fault["loc"][0]) if error.title == options.__name__ and fault["loc"] else ""
    value = getattr(request, field, None)
    if value is None:
        return None
    return UsageError(f"--{field.replace('_', '-')} {value}: {fault['msg'][0].lower()}{fault['msg'][1:]}")


@dataclass(frozen=True)
class Workspace:
    """Place where a preparation reads this host and tries servers.

    ``account`` is the user that servers run as (None: the current user). ``directory`` is temporary, and ``cache`` is permanent. With
    ``dry`` nothing is loaded.
    """

    node: Node
    account: str | None
    journal: Journal
    directory: Path
    cache: Path
    dry: bool


@contextlib.contextmanager
def open_workspace(node: Node, run_as: str | None, *, dry: bool) -> Iterator[Workspace]:
    """Yield a workspace for servers of the user ``run_as``, and remove its temporary files on exit. Raises UsageError for a wrong user."""
    account = server_account(run_as)
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        yield Workspace(node, account, journal, paths.work_tree(node, journal, "prepare", account), paths.cache_dir(), dry)
    finally:
        journal.close()
