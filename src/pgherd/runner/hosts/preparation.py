"""Completing a request for all hosts of a cluster: what each has, whether they are alike enough, and how much they give together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pgherd import __version__
from pgherd.cluster.remote import Engine
from pgherd.model.base import Model
from pgherd.model.cluster import Cluster
from pgherd.model.deployment import HOST_NAME, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.runner.hosts.agent import Greeting
from pgherd.runner.hosts.crew import Crew
from pgherd.runner.hosts.placing import ONE, placed
from pgherd.runner.prepare import budgets, catalogue, host_roles
from pgherd.runner.prepare.catalogue import request_of, study_of, use_of
from pgherd.runner.prepare.preparation import DISK_RESERVE
from pgherd.runner.prepare.prepared import Prepared
from pgherd.runner.prepare.variants import parse_variant, plain
from pgherd.studies.compare import CompareOptions
from pgherd.studies.databases import DatabaseRequest
from pgherd.studies.spread import PIN, SpreadRequest, of_one_host
from pgherd.workloads.script import parse_script

Options = TypeVar("Options", bound=Model)
Put = Callable[[str, bytes], str]
"""Keeps a file of this name on the other host; returns its path there."""

_ONE_FILE = ("init", "like")


class SentFiles:
    """Files of one request. ``back``: path there → absolute path here."""

    def __init__(self, put: Put) -> None:
        """Nothing is sent yet."""
        self.back: dict[str, str] = {}
        self._put = put

    def send(self, asked: Options) -> Options:
        """The request with the files that it names, its variants' and its arms' among them, as the other host has them.

        Raises:
            UsageError: one cannot be read.
        """
        changes = self._changed({name: getattr(asked, name) for name in asked.model_fields_set})
        if getattr(asked, "variant", ()):
            changes["variant"] = tuple(map(self._variant, asked.variant))  # type: ignore[attr-defined]  # just seen
        if getattr(asked, "arms", ()):
            arms = asked.arms  # type: ignore[attr-defined]  # just seen
            changes["arms"] = tuple(arm.model_copy(update={"options": arm.options | self._changed(arm.options)}) for arm in arms)
        return asked.model_copy(update=changes)

    def returned(self, options: Options) -> Options:
        """Complete options with the paths that they have here."""
        return type(options).model_validate(_replaced(options.model_dump(mode="json"), self.back)) if self.back else options

    def _changed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of these options that name files, with the paths there."""
        found: dict[str, Any] = {}
        if options.get("script"):
            found["script"] = tuple(map(self._script, options["script"]))
        for name in _ONE_FILE:
            given = options.get(name)
            if given and (name != "like" or Path(given).is_file()):  # else it is a server's DSN
                found[name] = self._sent(given)
        return found

    def _variant(self, text: str) -> str:
        name, changes = parse_variant(text)
        options: dict[str, Any] = {plain(key): value for key, value in changes.items()}
        if "script" in options:
            options["script"] = options["script"].split(",")
        there = self._changed(options)
        if not there:
            return text
        values = {key: ",".join(new) if isinstance(new := there.get(plain(key), old), tuple) else new for key, old in changes.items()}
        return f"{name}:" + ",".join(f"{key}={_quoted(value)}" for key, value in values.items())

    def _script(self, text: str) -> str:
        one = parse_script(text)
        return text if ":" in one.source else f"{self._sent(one.source)}@{one.weight}"

    def _sent(self, path: str) -> str:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        there = self._put(f"{len(self.back):03d}-{Path(path).name}", data)
        self.back[there] = str(Path(path).resolve())
        return there


def _quoted(value: str) -> str:
    """As a variant's text has it."""
    return '"' + value.replace('"', '""') + '"'


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    """The same structure with every text that is one of the names replaced."""
    if isinstance(value, dict):
        return {key: _replaced(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


_COMPARED = ("kernel", "os", "cpu_model", "logical_cpus", "smt", "governor", "boost", "virtualisation", "transparent_huge_pages", "cgroup")
"""Facts that hosts of one run should have in common; where they do not, the run says so."""
_THEIRS = (
    "--server names somebody else's server, which is loaded from this host; leave --cluster out, or run pgherd on the host that loads it"
)
_NO_GUESTS = "virtual machines on several hosts cannot be had yet; use --runtime cgroup, or leave --cluster out"


def prepare_over(engine: Engine, study: str, asked: SpreadRequest, *, dry: bool) -> tuple[Prepared, dict[str, HostFacts]]:
    """Complete and check a request for all hosts of the engine, on the first of them; returns it with the facts of each.

    A study that uses its hosts together is completed for the sum of them; one that runs on one host at a time is completed by its
    host, as if it had been asked there. One that says itself what each host does is completed by all of them, each for itself.

    Raises:
        UsageError: it asks for something wrong, or for more than there is, on a disk too; or the hosts' versions differ.
        CapabilityError: a host cannot do it.
    """
    use = use_of(study)
    _insist_deployed(asked)
    crew = Crew(engine)
    try:
        names = crew.gather()
        met: dict[str, Greeting] = crew.all("hello", dict.fromkeys(names, ()), timeout=120.0)
        _insist_alike(met)
        hosts = tuple(_host(name, one, crew.addresses()[name]) for name, one in met.items())
        roles = host_roles.choose(use, asked, hosts)
        if use != "one":  # else it is for the one host to say what it has
            roles = replace(roles, carry=tuple(_host(host.name, met[host.name], host.address, asked) for host in roles.carry))
        used = [*roles.carry, *([roles.client] if roles.client else [])]
        if getattr(asked, "runtime", None) == "vm":
            raise CapabilityError(_NO_GUESTS)
        first = roles.carry[0].name
        files = SentFiles(partial(crew.call, first, "put"))
        request = _for_hosts(use, files.send(_from_here(asked)), roles)
        by_each = catalogue.completed_by_each(study)
        asking = {host.name: (study, request, dry) for host in (roles.carry if by_each else roles.carry[:1])}
        found: dict[str, Prepared] = crew.all("prepare", asking, timeout=4 * 3600.0)
        prepared = catalogue.over(study, found) if by_each else found[first]
        prepared = replace(prepared, options=files.returned(prepared.options))
        first_trials = study_of(prepared.study).propose(prepared.options, []).trials if prepared.installation is not None else ()
        _insist_runnable(prepared, first_trials, {host.name: met[host.name] for host in used})
        if use != "together":
            budget = {"cores": prepared.surroundings.cores, "memory": prepared.surroundings.memory}
            used = [host.model_copy(update=budget) if host in roles.carry else host for host in used]
        cluster = _cluster(use, asked, roles, tuple(used))
        if prepared.installation is not None and not by_each:  # the host that completed the request has looked at itself
            held = _held(first_trials if use == "together" else (), cluster, [host.name for host in roles.carry[1:]])
            _insist_room(prepared, held, {name: met[name].room for name in held})
            _insist_volumes(crew, prepared, held)
        if prepared.huge_pages and not dry:
            crew.all("try_out", {host.name: (dict(prepared.huge_pages),) for host in roles.carry}, timeout=120.0)
    finally:
        crew.dismiss()
    facts = {host.name: met[host.name].facts for host in used}
    if use == "together":
        said = _sentences(tuple(used), asked.placement, facts, deployed=isinstance(asked, DatabaseRequest))
    else:
        said = _sentences(tuple(used), None, facts, deployed=True)
        if isinstance(prepared.options, CompareOptions) and use == "in turn":
            prepared = replace(prepared, options=prepared.options.model_copy(update={"hosts": tuple(host.name for host in roles.carry)}))
    if not by_each:  # else each has said what it will change
        everywhere = (
            f"on host {first}"
            if use != "together" and len(roles.carry) == 1
            else f"on each of the {len(roles.carry)} hosts (paths as on {first})"
        )
        changes = (f"{everywhere}: {'; '.join(prepared.host_changes)}",) if prepared.host_changes else ()
        prepared = replace(
            prepared,
            host_changes=changes,
            confirm=tuple(f"{everywhere}: {change}" for change in prepared.confirm),
            typed=tuple(f"{host.name}:{device}" for host in roles.carry for device in prepared.typed),
        )
    return (
        replace(
            prepared,
            surroundings=prepared.surroundings.model_copy(update={"cluster": cluster}),
            choices=(*said, *host_roles.sentences(use, roles, hosts), *prepared.choices),
        ),
        facts,
    )


def _cluster(use: host_roles.Use, asked: SpreadRequest, roles: host_roles.Roles, used: tuple[Host, ...]) -> Cluster:
    alone = use != "together" and len(roles.carry) == 1
    return Cluster(
        address=asked.cluster or "",
        tls=None if asked.cluster_tls is None else str(Path(asked.cluster_tls).resolve()),
        hosts=used,
        placement=f"label:{PIN}={roles.carry[0].name}" if alone else asked.placement if use == "together" else "spread",
        on_lost_host="stop" if alone else asked.on_lost_host,
        client=None if roles.client is None else roles.client.name,
        in_turn=use == "in turn" and not alone,
    )


def _host(name: str, met: Greeting, address: str | None, asked: Model | None = None) -> Host:
    """The host with the budget that was asked for; by default all that it has."""
    if name == ONE:
        raise UsageError(f"a host of a cluster cannot be called '{ONE}': that is the name for all of them together; give it another")
    if not re.fullmatch(HOST_NAME, name):
        raise UsageError(
            f"a host has joined the cluster as '{name}'; give it a name of letters, digits, '.', ':', '-' and '_': dask worker --name NAME"
        )
    cores, memory = budgets.one_host(getattr(asked, "cores", None), getattr(asked, "host_memory", None), met.facts, name)
    return Host(name=name, cores=cores, memory=memory, labels={**met.labels, PIN: name}, address=address)  # it is pinned by that one


def counted(cores: float | None) -> str:
    """``1 core``, ``2.5 cores``."""
    return f"{cores:g} core{'' if cores == 1 else 's'}" if cores is not None else "all cores"


def _insist_alike(met: Mapping[str, Greeting]) -> None:
    other = {name: one.pgherd for name, one in met.items() if one.pgherd != __version__}
    if other:
        said = ", ".join(f"{version} on {name}" for name, version in other.items())
        raise UsageError(f"this is pgherd {__version__}, but there is {said}; install the same version on every host")


def _insist_deployed(asked: SpreadRequest) -> None:
    """That the agents of hosts can deploy what is asked for: servers of ours, and no studies of another kind as a comparison's arms."""
    if getattr(asked, "server", None) is not None:
        raise UsageError(_THEIRS)
    other = sorted({arm.study for arm in getattr(asked, "arms", ()) if not issubclass(request_of(arm.study), DatabaseRequest)})
    if other:
        raise UsageError(f"a comparison of {', '.join(other)} runs on one host, where pgherd is called; leave --cluster out")
    if getattr(asked, "arms", ()) and host_roles.client_of(asked) is not None:
        raise UsageError("--client-host is for --variant, and does not go with scenario files; leave it out")


def _insist_runnable(prepared: Prepared, trials: Sequence[Trial], met: Mapping[str, Greeting]) -> None:
    """That every host can run the study's servers: its first proposal names them all."""
    if prepared.installation is None:
        return
    servers = [server for trial in trials for _, _, server in trial.deployment.servers()]
    if any(server.dsn is not None for server in servers):
        raise UsageError(_THEIRS)
    if any(container.runtime == "vm" for trial in trials for _, container in trial.deployment.containers()):
        raise CapabilityError(_NO_GUESTS)
    for version in dict.fromkeys([prepared.installation.version, *(server.version for server in servers)]):
        without = {name: one.postgres for name, one in met.items() if version not in {found for found, _ in one.postgres}}
        if without:
            said = "; ".join(f"{name} has {', '.join(found for found, _ in there) or 'none'}" for name, there in without.items())
            raise UsageError(f"the run is of PostgreSQL {version}, but {said}; install it on every host, or name another with --pg-version")


def _held(trials: Sequence[Trial], cluster: Cluster, others: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For each of the ``others``, how many containers it may hold, and how many the fullest host of all has, for which the request was
    completed. Without ``trials``, of a study that runs on one host at a time, which puts the same on each: one of one.

    Only the study's first proposal is known here: what it plans from the start, of which a host is taken to hold the same share later. A
    host that it leaves out counts as the fullest one, unless the placement names other hosts.
    """
    counts: dict[str, int] = {}
    for trial in trials:
        try:
            hosts = placed(trial, cluster).deployment.hosts
        except ValueError as error:
            raise UsageError(str(error)) from None
        for host in hosts:
            counts[host.name] = max(counts.get(host.name, 0), len(host.containers))
    most = max(counts.values(), default=1)
    return {name: (counts.get(name) or most, most) for name in others}


def _insist_room(prepared: Prepared, held: Mapping[str, tuple[int, int]], free: Mapping[str, int]) -> None:
    """That the servers' data has room on these hosts, too (host → bytes)."""
    for name, (here, most) in held.items():
        # What is estimated is for the host with most containers, a golden copy beside them.
        need = prepared.disk * (here + 1) // (most + 1)
        if need + DISK_RESERVE > free[name]:
            raise UsageError(
                f"host {name} has {format_bytes(free[name])} free below its cache directory, and the servers' data may need "
                f"{format_bytes(need)} there; free some, give its agent another XDG_CACHE_HOME, or lower --scale"
            )


def _insist_volumes(crew: Crew, prepared: Prepared, held: Mapping[str, tuple[int, int]]) -> None:
    """That these hosts, too, have the volumes on which parts of the servers are to lie, and room on them for their share."""
    if prepared.holds:
        run_as = prepared.surroundings.run_as
        asked = {name: (tuple(one.part(here, most) for one in prepared.holds), run_as) for name, (here, most) in held.items()}
        crew.all("look", asked, timeout=120.0)


def _for_hosts(use: host_roles.Use, asked: SpreadRequest, roles: host_roles.Roles) -> SpreadRequest:
    """The request as its first host is to complete it."""
    outside = {} if roles.client is None else {"client_place": "outside"}
    if use == "together":
        return asked.model_copy(update={"over": roles.carry, **outside})
    if len(roles.carry) > 1:  # all of them get what the smallest can give
        cores, memory = min(host.cores or 0.0 for host in roles.carry), min(host.memory or 0 for host in roles.carry)
        return of_one_host(asked, cores=cores, host_memory=str(memory), **outside)
    return of_one_host(asked, **outside)


def _from_here(asked: SpreadRequest) -> SpreadRequest:
    """What is relative to here means here, not where the agent happens to have been started."""
    here = "cwd" in type(asked).model_fields and getattr(asked, "cwd", None) is None
    return asked.model_copy(update={"cwd": str(Path.cwd())}) if here else asked


def _sentences(hosts: tuple[Host, ...], placement: str | None, facts: Mapping[str, HostFacts], *, deployed: bool) -> list[str]:
    each = [f"{host.name} ({counted(host.cores)}, {format_bytes(host.memory or 0)})" for host in hosts]
    rule = f"; containers are placed by '{placement}'" if deployed and placement is not None else ""
    found = [f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}: {', '.join(each)}{rule}."]
    for name in _COMPARED:
        values = {host: getattr(one, name) for host, one in facts.items()}
        if len({str(value) for value in values.values()}) > 1:
            found.append(f"Warning: the hosts differ in {name}: {', '.join(f'{host} {value}' for host, value in values.items())}.")
    return found
