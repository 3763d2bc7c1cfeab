"""Completion of a request for all hosts of a cluster: what each host has, their differences, and their sum.

The first host completes the request. The user's files are sent there, and the result names them as the user did.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pgherd import __version__
from pgherd.cluster.interfaces import ClusterClient
from pgherd.distributed.agent import HostInfo
from pgherd.distributed.agent_pool import SETUP_TIMEOUT_S, AgentPool
from pgherd.distributed.place_trial import ONE, placed
from pgherd.model.base import NAME, Model
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import Cluster
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.node.local import LocalNode
from pgherd.postgres import configuration
from pgherd.prepare import hosts as prepare_hosts
from pgherd.prepare import merge
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.requests import parse_variant, plain, several_values, variant_text
from pgherd.prepare.volumes import DISK_RESERVE
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.shared_options import PIN, ClusterRequest, StudyOptions, of_one_host
from pgherd.study.study import study_of
from pgherd.workloads.user_script import is_provided, parse_script

Options = TypeVar("Options", bound=Model)
Put = Callable[[str, bytes], str]
"""Function that stores a file of this name on the other host and returns its path there."""

_ONE_FILE = ("init_script", "settings_from")


class UploadedFiles:
    """Files of one request that are sent to another host. ``back`` maps the path there to the absolute path here."""

    def __init__(self, put: Put) -> None:
        self.back: dict[str, str] = {}
        self._put = put

    def send(self, request: Options) -> Options:
        """Return the request with the other host's paths of its files, including those of variants and scenarios.

        Raises:
            UsageError: a file cannot be read.
        """
        changes = self._changed({name: getattr(request, name) for name in request.model_fields_set})
        if getattr(request, "variant", ()):
            changes["variant"] = tuple(map(self._variant, request.variant))  # type: ignore[attr-defined]  # just seen
        if getattr(request, "scenarios", ()):
            scenarios = request.scenarios  # type: ignore[attr-defined]  # just seen
            changes["scenarios"] = tuple(
                scenario.model_copy(update={"options": scenario.options | self._changed(scenario.options)}) for scenario in scenarios
            )
        return request.model_copy(update=changes)

    def returned(self, options: Options) -> Options:
        """Return complete options with local paths."""
        return type(options).model_validate(_replaced(options.model_dump(mode="json"), self.back)) if self.back else options

    def _changed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of these options that name files, with the paths there."""
        changed: dict[str, Any] = {}
        if options.get("script"):
            changed["script"] = tuple(map(self._script, options["script"]))
        for name in _ONE_FILE:
            value = options.get(name)
            if value and (name != "settings_from" or Path(value).is_file()):  # otherwise it is a server's DSN
                changed[name] = self._settings(value) if name == "settings_from" else self._sent(value)
        return changed

    def _variant(self, text: str) -> str:
        name, changes = parse_variant(text)
        options: dict[str, Any] = {plain(key): value for key, value in changes.items()}
        if "script" in options:
            options["script"] = several_values(options["script"])
        changed = self._changed(options)
        if not changed:
            return text
        values = {key: ",".join(new) if isinstance(new := changed.get(plain(key), old), tuple) else new for key, old in changes.items()}
        return variant_text(name, values)

    def _script(self, text: str) -> str:
        script = parse_script(text, os.path.exists)
        return text if is_provided(script) else f"{self._sent(script.source)}@{script.weight}"

    def _settings(self, path: str) -> str:
        """Send one file with the settings of all files that PostgreSQL would read, and with includes that cannot be read."""
        try:
            found = configuration.read_files(LocalNode(), path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        missing = "".join(f"include {configuration.quote(unread.partition(': ')[0])}\n" for unread in found.includes)
        return self._sent(path, (configuration.write(found.settings) + missing).encode())

    def _sent(self, path: str, data: bytes | None = None) -> str:
        try:
            data = Path(path).read_bytes() if data is None else data
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        plain_name = re.sub(r"[^\w.-]", "_", Path(path).name)  # without characters at which options are split
        remote_path = self._put(f"{len(self.back):03d}-{plain_name}", data)
        self.back[remote_path] = str(Path(path).resolve())
        return remote_path


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    """Return the same structure with every text that is one of the names replaced."""
    if isinstance(value, dict):
        return {key: _replaced(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


_COMPARED = ("kernel", "os", "cpu_model", "logical_cpus", "smt", "governor", "boost", "virtualisation", "transparent_huge_pages", "cgroup")
"""Facts that hosts of one run should share. The run warns about differences."""
_EXTERNAL = (
    "--dsn names an external server (or --servers several), which is loaded from this host; omit --cluster, or run pgherd on the host that "
    "loads it"
)
_NO_GUESTS = "virtual machines are not supported on several hosts yet; use --runtime cgroup, or omit --cluster"


def prepare_over(engine: ClusterClient, study: str, asked: ClusterRequest, *, dry: bool) -> tuple[PreparedStudy, dict[str, HostFacts]]:
    """Complete and check a request for all hosts of the engine, on the first of them. Return it with the facts of each
    host.

    A study that uses its hosts together is completed for their sum. A study that runs on one host at a time is
    completed by its host, as a local request. A study that defines what each host does is completed by each of them.

    Raises:
        UsageError: the request is invalid or exceeds the hosts' resources, or the hosts' versions differ.
        CapabilityError: a host does not support it.
    """
    use = study_of(study).hosts
    _require_deployable(asked)
    pool = AgentPool(engine)
    try:
        names = pool.gather()
        greetings: dict[str, HostInfo] = pool.all("hello", dict.fromkeys(names, ()), timeout=120.0)
        _require_same_version(greetings)
        hosts = tuple(_host(name, greeting, pool.addresses()[name]) for name, greeting in greetings.items())
        roles = prepare_hosts.choose_roles(use, asked, hosts)
        if use != "one":  # a single host reports its resources itself
            roles = replace(roles, carry=tuple(_host(host.name, greetings[host.name], host.address, asked) for host in roles.carry))
        used = [*roles.carry, *([roles.client] if roles.client else [])]
        runtime = getattr(asked, "runtime", None)
        if runtime is not None and not capabilities_of(runtime).several_hosts:
            raise CapabilityError(_NO_GUESTS)
        first = roles.carry[0].name
        files = UploadedFiles(partial(pool.put, first))
        request = _for_hosts(use, files.send(_from_here(asked)), roles)
        by_each = study_of(study).each_host
        asking = {host.name: (study, request, dry) for host in (roles.carry if by_each else roles.carry[:1])}
        by_host: dict[str, PreparedStudy] = pool.all("prepare", asking, timeout=SETUP_TIMEOUT_S)
        prepared = merge.over_hosts(study, by_host) if by_each else by_host[first]
        prepared = replace(prepared, options=files.returned(prepared.options))
        first_trials = study_of(prepared.study).propose(prepared.options, []).trials if prepared.installation is not None else ()
        _require_installations(pool, prepared, first_trials, {host.name: greetings[host.name] for host in used})
        if use != "together":
            budget = {"cores": prepared.environment.cores, "memory": prepared.environment.memory}
            used = [host.model_copy(update=budget) if host in roles.carry else host for host in used]
        cluster = _cluster(use, asked, roles, tuple(used))
        if prepared.installation is not None and not by_each:  # the host that completed the request has checked itself
            shares = _shares(first_trials if use == "together" else (), cluster, [host.name for host in roles.carry[1:]])
            _require_disk_space(prepared, shares, {name: greetings[name].free_bytes for name in shares})
            _require_volumes(pool, prepared, shares)
        if prepared.huge_pages and not dry:
            pool.all("probe_huge_pages", {host.name: (dict(prepared.huge_pages),) for host in roles.carry}, timeout=120.0)
    finally:
        pool.dismiss()
    facts = {host.name: greetings[host.name].facts for host in used}
    if use == "together":
        sentences = _sentences(tuple(used), asked.placement, facts, deployed=isinstance(asked, DatabaseRequest))
    else:
        sentences = _sentences(tuple(used), None, facts, deployed=True)
        if use == "in turn" and isinstance(prepared.options, StudyOptions):
            prepared = replace(prepared, options=prepared.options.on_hosts(tuple(host.name for host in roles.carry)))
    if not by_each:  # else each has sentences what it will change
        location = (
            f"on host {first}"
            if use != "together" and len(roles.carry) == 1
            else f"on each of the {len(roles.carry)} hosts (paths as on {first})"
        )
        changes = (f"{location}: {'; '.join(prepared.host_changes)}",) if prepared.host_changes else ()
        prepared = replace(
            prepared,
            host_changes=changes,
            confirm=tuple(f"{location}: {change}" for change in prepared.confirm),
            typed=tuple(f"{host.name}:{device}" for host in roles.carry for device in prepared.typed),
        )
    return (
        replace(
            prepared,
            environment=prepared.environment.model_copy(update={"cluster": cluster}),
            defaults_chosen=(*sentences, *prepare_hosts.describe_roles(use, roles, hosts), *prepared.defaults_chosen),
        ),
        facts,
    )


def _cluster(use: prepare_hosts.Use, asked: ClusterRequest, roles: prepare_hosts.HostRoles, used: tuple[Host, ...]) -> Cluster:
    single_host = use != "together" and len(roles.carry) == 1
    return Cluster(
        address=asked.cluster or "",
        tls=None if asked.cluster_certs is None else str(Path(asked.cluster_certs).resolve()),
        hosts=used,
        placement=f"label:{PIN}={roles.carry[0].name}" if single_host else asked.placement if use == "together" else "spread",
        on_lost_host="stop" if single_host else asked.on_lost_host,
        client=None if roles.client is None else roles.client.name,
        in_turn=use == "in turn" and not single_host,
    )


def _host(name: str, met: HostInfo, address: str | None, asked: Model | None = None) -> Host:
    """Return the host with the requested cores and memory; by default all that it has."""
    if name == ONE:
        raise UsageError(f"a host of a cluster cannot be called '{ONE}', because that names all of them together; rename it")
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"a host has joined the cluster as '{name}'; give it a name of letters, digits, '.', ':', '-' and '_': dask worker --name NAME"
        )
    cores, memory = prepare_hosts.one_host(getattr(asked, "host_cores", None), getattr(asked, "host_memory", None), met.facts, name)
    nodes = met.facts.cpu_nodes[: math.ceil(cores)]
    labels = {**met.labels, PIN: name}  # the label by which it is pinned
    return Host(name=name, cores=cores, cpu_nodes=nodes, memory=memory, labels=labels, address=address)


def counted(cores: float | None) -> str:
    """Return text such as ``1 core`` or ``2.5 cores``."""
    return f"{cores:g} core{'' if cores == 1 else 's'}" if cores is not None else "all cores"


def _require_same_version(met: Mapping[str, HostInfo]) -> None:
    others = {name: greeting.pgherd for name, greeting in met.items() if greeting.pgherd != __version__}
    if others:
        versions = ", ".join(f"{version} on {name}" for name, version in others.items())
        raise UsageError(f"this is pgherd {__version__}, but found {versions}; install the same version on every host")


def _require_deployable(asked: ClusterRequest) -> None:
    """Require that agents can deploy the request: private servers only, and no other studies as a comparison's scenarios."""
    if getattr(asked, "dsn", ()) or getattr(asked, "servers", None) is not None:
        raise UsageError(_EXTERNAL)
    other = sorted(
        {
            scenario.study
            for scenario in getattr(asked, "scenarios", ())
            if not issubclass(study_of(scenario.study).request_model, DatabaseRequest)
        }
    )
    if other:
        raise UsageError(f"a comparison of {', '.join(other)} runs only on the local host; omit --cluster")
    if getattr(asked, "scenarios", ()) and prepare_hosts.client_of(asked) is not None:
        raise UsageError("--client-host works with --variant only, not with scenario files; omit it")


def _require_installations(pool: AgentPool, prepared: PreparedStudy, trials: Sequence[Trial], met: Mapping[str, HostInfo]) -> None:
    """Require that every host has the study's PostgreSQL versions, at a usual place or in the same directory as the first host.

    The first proposal has them all.
    """
    if prepared.installation is None:
        return
    servers = [server for trial in trials for _, _, server in trial.deployment.servers()]
    if any(server.dsn is not None for server in servers):
        raise UsageError(_EXTERNAL)
    if any(capabilities_of(container.runtime).own_kernel for trial in trials for _, container in trial.deployment.containers()):
        raise CapabilityError(_NO_GUESTS)
    first = prepared.installation
    for directory, version in dict.fromkeys([(first.bin, first.version), *((server.bin, server.version) for server in servers)]):
        without = {
            name: [installed for installed, _ in greeting.postgres]
            for name, greeting in met.items()
            if version not in {installed for installed, _ in greeting.postgres}
        }
        if without:
            in_directory = pool.all("version_in", dict.fromkeys(without, (directory,)), timeout=120.0)
            without = {name: installed for name, installed in without.items() if in_directory[name] != version}
        if without:
            versions = "; ".join(f"{name} has {', '.join(installed) or 'none'}" for name, installed in without.items())
            raise UsageError(
                f"the run uses PostgreSQL {version}, but {versions}; install it on every host, or choose one with --pg-version"
            )


def _shares(trials: Sequence[Trial], cluster: Cluster, others: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return for each of the ``others`` its maximum number of containers, and that of the fullest host, for which the
    request was completed.

    Without ``trials``, for a study that runs on one host at a time and deploys the same on each, it is one of one.

    Only the study's first proposal is known here. A host is assumed to hold the same share later. A host that it
    omits counts as the fullest one, unless the placement names other hosts.
    """
    counts: dict[str, int] = {}
    for trial in trials:
        try:
            hosts = placed(trial, cluster).deployment.hosts
        except ValueError as error:
            raise UsageError(str(error)) from None
        for host in hosts:
            counts[host.name] = max(counts.get(host.name, 0), len(host.containers))
    maximum = max(counts.values(), default=1)
    return {name: (counts.get(name) or maximum, maximum) for name in others}


def _require_disk_space(prepared: PreparedStudy, shares: Mapping[str, tuple[int, int]], free: Mapping[str, int]) -> None:
    """Require that these hosts (host → free bytes) have space for the servers' data."""
    for name, (containers, maximum) in shares.items():
        # The estimate is for the host with the most containers and one template.
        need = prepared.disk * (containers + 1) // (maximum + 1)
        if need + DISK_RESERVE > free[name]:
            raise UsageError(
                f"host {name} has {format_bytes(free[name])} free below its cache directory, and the servers' data may need "
                f"{format_bytes(need)} there; free some space, set a different XDG_CACHE_HOME for its agent, or lower --scale"
            )


def _require_volumes(pool: AgentPool, prepared: PreparedStudy, shares: Mapping[str, tuple[int, int]]) -> None:
    """Require that these hosts have the volumes for parts of the servers, with space for their share."""
    if prepared.holds:
        run_as = prepared.environment.run_as
        arguments = {
            name: (tuple(holding.part(containers, maximum) for holding in prepared.holds), run_as)
            for name, (containers, maximum) in shares.items()
        }
        pool.all("check_volumes", arguments, timeout=120.0)


def _for_hosts(use: prepare_hosts.Use, asked: ClusterRequest, roles: prepare_hosts.HostRoles) -> ClusterRequest:
    """Return the request that the first host completes."""
    outside = {} if roles.client is None else {"client_placement": "outside"}
    if use == "together":
        return asked.model_copy(update={"over": roles.carry, **outside})
    if len(roles.carry) > 1:  # all hosts get the resources of the smallest
        cores, memory = min(host.cores or 0.0 for host in roles.carry), min(host.memory or 0 for host in roles.carry)
        return of_one_host(asked, host_cores=cores, host_memory=str(memory), **outside)
    return of_one_host(asked, **outside)


def _from_here(asked: ClusterRequest) -> ClusterRequest:
    """Return the request with the local working directory, because the agent's may differ."""
    needs_directory = "cwd" in type(asked).model_fields and getattr(asked, "cwd", None) is None
    return asked.model_copy(update={"cwd": str(Path.cwd())}) if needs_directory else asked


def _sentences(hosts: tuple[Host, ...], placement: str | None, facts: Mapping[str, HostFacts], *, deployed: bool) -> list[str]:
    each = [f"{host.name} ({counted(host.cores)}, {format_bytes(host.memory or 0)})" for host in hosts]
    rule = f"; containers are placed by '{placement}'" if deployed and placement is not None else ""
    sentences = [f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}: {', '.join(each)}{rule}."]
    for name in _COMPARED:
        values = {host: getattr(host_facts, name) for host, host_facts in facts.items()}
        if len({str(value) for value in values.values()}) > 1:
            sentences.append(f"Warning: the hosts differ in {name}: {', '.join(f'{host} {value}' for host, value in values.items())}.")
    return sentences
