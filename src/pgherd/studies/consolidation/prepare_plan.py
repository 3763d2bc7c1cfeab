"""Dry-run output of a consolidation: a line for each scheme, the memory of the host, and the plan of clients."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import GuestMemory
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.studies.consolidation import load_patterns, prepare_guests
from pgherd.studies.consolidation.options import SCHEMES, ConsolidationOptions


def lines(options: ConsolidationOptions, trials: Sequence[Trial], guest_memory: GuestMemory | None = None) -> list[str]:
    """Return the sentences in display order. ``guest_memory`` is the memory policy of the guests, if there are any."""
    found = []
    for scheme in options.schemes:
        scheme_trials = [trial for trial in trials if trial.point["scheme"] == scheme]
        if scheme in options.unavailable:
            found.append(f"Scheme {scheme} ({SCHEMES[scheme]}) is not available: {options.unavailable[scheme]}.")
        elif scheme_trials:
            each = f"; memory of each guest: {prepare_guests.words(options, scheme, guest_memory)}" if guest_memory is not None else ""
            found.append(f"Scheme {scheme} ({SCHEMES[scheme]}): {_deployment(scheme_trials)}{each}.")
    left = [f"{100 * rate:g} %: {format_bytes(options.available(rate))}" for rate in options.rates if rate > 0]
    limited = "configured" if options.container_memory is not None else "assumed (no limit is enforced)"
    memory = f"Memory: {format_bytes(options.configured)} {limited}, {format_bytes(options.memory)} on the host"
    found.append(memory + (f"; available when overcommitted by {', '.join(left)}." if left else "."))
    found.append(
        f"Load: {options.workload} of scale {options.scale} in each database, clients {options.client_place} the containers: "
        f"{load_patterns.format_plan(options.plan)} in periods of {format_seconds(options.seconds)}, "
        f"each after {format_seconds(options.ramp)} of warm-up."
    )
    return found


def _deployment(trials: Sequence[Trial]) -> str:
    deployment = trials[0].deployment
    containers = [container for _, container in deployment.containers()]
    one = containers[0]
    limits: list[str] = [one.runtime]
    if one.vcpus and one.cpu_mode != "none":
        limits.append(f"{one.vcpus:g} vCPU by {one.cpu_mode}")
    elif one.vcpus and capabilities_of(one.runtime).whole_vcpus:
        limits.append(f"{one.vcpus:g} vCPU")
    if one.memory:
        limits.append(format_bytes(one.memory))
    kind = "guest" if capabilities_of(one.runtime).own_kernel else "container"
    servers, databases = len(one.servers), len(one.servers[0].databases)
    sizes = sorted({server.settings["shared_buffers"] for trial in trials for *_, server in trial.deployment.servers()}, key=_megabytes)
    return (
        f"{_count(len(containers), kind)} ({', '.join(limits)}), in each {_count(servers, 'server')} of PostgreSQL "
        f"{one.servers[0].version} with {_count(databases, 'database')}; shared_buffers {', '.join(sizes)}"
    )


def _megabytes(text: str) -> int:
    return int(text.removesuffix("MB"))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
