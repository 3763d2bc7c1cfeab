"""Completing a request for all hosts of a cluster: what each has, whether they are alike enough, and how much they give together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgherd import __version__
from pgherd.cluster.remote import Engine
from pgherd.model import placing
from pgherd.model.base import Model
from pgherd.model.cluster import Cluster
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.units import format_bytes
from pgherd.runner import budgets
from pgherd.runner.crew import Crew
from pgherd.runner.host_agent import Greeting
from pgherd.runner.placing import ONE
from pgherd.runner.prepared import Prepared
from pgherd.studies.databases import DatabaseRequest
from pgherd.studies.spread import SpreadRequest
from pgherd.workloads.script import parse_script

_COMPARED = ("kernel", "os", "cpu_model", "logical_cpus", "smt", "governor", "boost", "virtualisation", "transparent_huge_pages", "cgroup")
"""Facts that hosts of one run should have in common; where they do not, the run says so."""


def prepare_over(engine: Engine, study: str, asked: SpreadRequest, *, dry: bool) -> tuple[Prepared, dict[str, HostFacts]]:
    """Complete and check a request for all hosts of the engine, on the first of them; returns it with the facts of each.

    Raises:
        UsageError: it asks for something wrong, or for more than there is; or the hosts' versions differ.
        CapabilityError: a host cannot do it.
    """
    crew = Crew(engine)
    try:
        names = crew.gather()
        met: dict[str, Greeting] = crew.all("hello", dict.fromkeys(names, ()), timeout=120.0)
        _insist_alike(met)
        hosts = tuple(_host(name, one, asked) for name, one in met.items())
        try:
            placing.check(asked.placement, hosts)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if getattr(asked, "runtime", None) == "vm":
            raise CapabilityError("virtual machines on several hosts cannot be had yet; use --runtime cgroup, or leave --cluster out")
        first = names[0]
        request, back = _with_files(asked, crew, first)
        request = request.model_copy(update={"over": hosts})
        prepared: Prepared = crew.call(first, "prepare", study, request, dry, timeout=4 * 3600.0)
        _insist_version(prepared, met)
        if prepared.huge_pages and not dry:
            crew.all("try_out", {host: (dict(prepared.huge_pages),) for host in names}, timeout=120.0)
    finally:
        crew.dismiss()
    cluster = Cluster(
        address=asked.cluster or "",
        tls=None if asked.cluster_tls is None else str(Path(asked.cluster_tls).resolve()),
        hosts=hosts,
        placement=asked.placement,
        on_lost_host=asked.on_lost_host,
    )
    facts = {name: one.facts for name, one in met.items()}
    everywhere = f"on each of the {len(hosts)} hosts (paths as on {first})"
    return (
        replace(
            prepared,
            options=_mapped_back(prepared.options, back),
            surroundings=prepared.surroundings.model_copy(update={"cluster": cluster}),
            choices=(*_sentences(hosts, asked.placement, facts, deployed=isinstance(asked, DatabaseRequest)), *prepared.choices),
            host_changes=(f"{everywhere}: {'; '.join(prepared.host_changes)}",) if prepared.host_changes else (),
            confirm=tuple(f"{everywhere}: {change}" for change in prepared.confirm),
        ),
        facts,
    )


def _host(name: str, met: Greeting, asked: Model) -> Host:
    if name == ONE:
        raise UsageError(f"a host of a cluster cannot be called '{ONE}': that is the name for all of them together; give it another")
    cores, memory = budgets.one_host(getattr(asked, "cores", None), getattr(asked, "host_memory", None), met.facts, name)
    return Host(name=name, cores=cores, memory=memory, labels={"host": name, **met.labels})


def counted(cores: float | None) -> str:
    """``1 core``, ``2.5 cores``."""
    return f"{cores:g} core{'' if cores == 1 else 's'}" if cores is not None else "all cores"


def _insist_alike(met: Mapping[str, Greeting]) -> None:
    other = {name: one.pgherd for name, one in met.items() if one.pgherd != __version__}
    if other:
        said = ", ".join(f"{version} on {name}" for name, version in other.items())
        raise UsageError(f"this is pgherd {__version__}, but there is {said}; install the same version on every host")


def _insist_version(prepared: Prepared, met: Mapping[str, Greeting]) -> None:
    if prepared.installation is None:
        return
    version = prepared.installation.version
    without = {name: one.postgres for name, one in met.items() if version not in {found for found, _ in one.postgres}}
    if without:
        said = "; ".join(f"{name} has {', '.join(found for found, _ in there) or 'none'}" for name, there in without.items())
        raise UsageError(f"the run is of PostgreSQL {version}, but {said}; install it on every host, or name another with --pg-version")


def _sentences(hosts: tuple[Host, ...], placement: str, facts: Mapping[str, HostFacts], *, deployed: bool) -> list[str]:
    each = [f"{host.name} ({counted(host.cores)}, {format_bytes(host.memory or 0)})" for host in hosts]
    found = [f"{len(hosts)} hosts: {', '.join(each)}" + (f"; containers are placed by '{placement}'." if deployed else ".")]
    for name in _COMPARED:
        values = {host: getattr(one, name) for host, one in facts.items()}
        if len({str(value) for value in values.values()}) > 1:
            found.append(f"Warning: the hosts differ in {name}: {', '.join(f'{host} {value}' for host, value in values.items())}.")
    return found


def _with_files(asked: SpreadRequest, crew: Crew, host: str) -> tuple[SpreadRequest, dict[str, str]]:
    """The request with the user's files as the host has them, and the way back: path there → path here."""
    if not isinstance(asked, DatabaseRequest):
        # What is relative to here means here, not where the agent happens to have been started.
        here = "cwd" in type(asked).model_fields and getattr(asked, "cwd", None) is None
        return (asked.model_copy(update={"cwd": str(Path.cwd())}) if here else asked), {}
    back: dict[str, str] = {}

    def sent(path: str) -> str:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        there: str = crew.call(host, "put", f"{len(back):03d}-{Path(path).name}", data)
        back[there] = str(Path(path).resolve())
        return there

    changes: dict[str, Any] = {}
    if asked.script:
        found = [parse_script(text) for text in asked.script]
        changes["script"] = tuple(
            f"{sent(one.source)}@{one.weight}" if ":" not in one.source else text for one, text in zip(found, asked.script, strict=True)
        )
    if asked.init:
        changes["init"] = sent(asked.init)
    if asked.like and Path(asked.like).is_file():
        changes["like"] = sent(asked.like)
    return asked.model_copy(update=changes), back


def _mapped_back(options: Model, back: Mapping[str, str]) -> Model:
    if not back:
        return options
    changes: dict[str, Any] = {}
    scripts: tuple[Script, ...] = getattr(options, "scripts", ())
    if scripts:
        changes["scripts"] = tuple(one.model_copy(update={"source": back.get(one.source, one.source)}) for one in scripts)
    init: str | None = getattr(options, "init", None)
    if init is not None:
        changes["init"] = back.get(init, init)
    return options.model_copy(update=changes)
