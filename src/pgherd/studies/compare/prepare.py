"""Completion of a comparison request: the options of each variant, the length of trials, the number of blocks and the shared settings."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgherd.analysis.paired import least_pairs
from pgherd.host.facts import gather
from pgherd.model.base import Model
from pgherd.model.deployment import Server
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.run import Surroundings
from pgherd.model.trial import State
from pgherd.model.units import format_seconds, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import huge_pages
from pgherd.prepare import duplicate_variants, merge_variants, registry, version_defaults
from pgherd.prepare.prepared_study import Prepared, most_pages, thresholds
from pgherd.prepare.scenarios import read_scenario
from pgherd.prepare.variants import FIXED, apply, parse_variant
from pgherd.runner.deploy import pages
from pgherd.studies.compare import prepare_interleaved
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityRequest
from pgherd.study.cluster_options import CLUSTER_FIELDS
from pgherd.study.comparison import variants
from pgherd.study.comparison.metrics import METRICS
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.propose import alpha
from pgherd.study.comparison.request import BlocksRequest, ScenarioVariant
from pgherd.study.comparison.tables import difference_rows
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.registry import study_of

BASE = "base"
"""Name of the unchanged request. A single variant is compared with it."""
BUDGET = 260.0
"""Time budget in seconds for two variants and the A/A pair. With copies, starts and the report, the run then ends within five minutes."""
LENGTH: Mapping[State, float] = {"warm": 3.0, "restarted": 5.0, "fresh": 8.0}
"""Measured seconds of a trial by the start state of its servers. Short trials allow many blocks. Long transitions need longer trials,
because 70 % of the time should be measurement."""
EXTRA: Mapping[State, float] = {"warm": 0.5, "restarted": 1.0, "fresh": 2.3}
"""Estimated seconds of a transition and of the end of the drivers, by start state."""
RAMP = 0.5
_BOTH = frozenset({"seed", "start_state", "run_as", "host_cores", "host_memory", "track", "threshold", "time_budget"})
"""Options that scenarios take from the comparison."""
_NOT_VARIED = FIXED | {"databases", "efficiency", "bound_by", "soak", "start_state"}


def prepare(node: Node, asked: CompareRequest, dry: bool) -> Prepared:
    """Complete a comparison for this host; see ``prepare.registry.prepare`` for what it raises."""
    metric, limits = _metric(asked), thresholds(asked.threshold)
    asked_budget = parse_seconds(asked.time_budget) if asked.time_budget else None
    facts = gather(node)
    seed = asked.seed if asked.seed is not None else random.randrange(2**31)
    study, requests = _requests(asked, facts, seed)
    made: dict[str, Prepared] = {}
    for name, request in requests.items():
        try:
            made[name] = registry.prepare(node, study, request, dry=dry)
        except UsageError as error:
            raise UsageError(f"{_who(asked)} '{name}': {error}") from None
    surroundings = merge_variants.surroundings({name: one.surroundings for name, one in made.items()})
    baseline = next(iter(made))
    stand = prepare_interleaved.choose(asked, requests, made, metric)
    state: State = "warm" if stand.together else _state(asked, made)
    options = {name: _measured_once(asked, prepared.options, state, stand.together) for name, prepared in made.items()}
    options = {
        name: one.model_copy(update={"container_memory": stand.memory[name]} if stand.together else {}) for name, one in options.items()
    }
    options = merge_variants.logged_alike(options)
    if stand.together:
        options = {name: prepare_interleaved.logged(one) for name, one in options.items()}
    duplicate_variants.require_different(node, _who(asked), requests, options, ", which the A/A pair shows anyway")
    found = CompareOptions(
        arms=tuple(Variant(name=name, study=study, options=one.model_dump(mode="json")) for name, one in options.items()),
        baseline=baseline,
        metric=metric,
        most=1,
        precision=asked.precision,
        equivalence=asked.equivalence_margin,
        budget_seconds=asked_budget or BUDGET * (len(options) + 1) / 3,
        own=bool(asked.arms),
        side_by_side=stand.together,
        defaults=version_defaults.between(node, made),
        seed=seed,
        thresholds=limits,
    )
    found = _timed(asked, found)
    whole = _merged(made, found, surroundings, [*_said(asked, found), stand.said])
    if not stand.together:
        return whole
    return replace(whole, disk=prepare_interleaved.disk(made), memory=prepare_interleaved.memory(made, stand.memory))


def _requests(asked: CompareRequest, facts: HostFacts, seed: int) -> tuple[str, dict[str, Model]]:
    """Return the study of the variants, and the request of each variant by name, the baseline first."""
    if asked.arms and asked.variant:
        raise UsageError("scenario files and --variant do not go together: compare either files, or variants of one server")
    if asked.arms:
        return _own_requests(asked, facts, seed)
    if not asked.variant:
        raise UsageError(
            "there is nothing to compare; name variants, such as --variant big:shared_buffers=1GB, or two scenario files (of any study "
            "that compares nothing itself)"
        )
    # All variants get the same share of the host, although the free memory changes while they are completed one after the other.
    given = {name: getattr(asked, name) for name in asked.model_fields_set & set(DensityRequest.model_fields) - {"time_budget", "repeats"}}
    cores = asked.host_cores or facts.cores
    defaults = {"vcpus": max(1.0, math.floor(cores / 2)) if cores >= 2 else cores, "host_memory": _free_memory(facts)}
    base = DensityRequest.model_validate({**defaults, **given, "databases": (1,), "seed": seed})
    requests: dict[str, Model] = {} if len(asked.variant) > 1 else {BASE: base}
    for text in asked.variant:
        name, changes = parse_variant(text)
        if name in requests:
            other = " (the unchanged request has this name)" if len(asked.variant) == 1 else ""
            raise UsageError(f"--variant {text}: the name '{name}' is used twice{other}; give each variant a different name")
        external = asked.dsn or "dsn" in changes  # pgherd sets no limits on an external server
        requests[name] = apply(_unlimited(base, given) if external else base, changes, name, fixed=_NOT_VARIED)
    return "density", _off_pages(requests)


def _free_memory(facts: HostFacts) -> str:
    """Return the default of ``--host-memory``: 80 % of the available memory."""
    return str(int(facts.memory_available * 0.8))


def _unlimited(base: DensityRequest, given: Mapping[str, Any]) -> DensityRequest:
    """Return the request without the default number of vCPUs. A number that the user sets stays."""
    return base if "vcpus" in given else base.model_copy(update={"vcpus": None})


def _off_pages(requests: dict[str, Model]) -> dict[str, Model]:
    """Set ``huge_pages = off`` for variants without this setting if another variant reserves huge pages.

    Otherwise PostgreSQL would use pages that are reserved for the other variant.
    """
    settings = {name: pages.asked_settings(one) for name, one in requests.items() if isinstance(one, DensityRequest)}
    if not any(huge_pages.insists(requested) for requested in settings.values()):
        return requests
    unset = {name for name, requested in settings.items() if "huge_pages" not in requested}
    return {
        name: one.model_copy(update={"set": (*getattr(one, "set", ()), "huge_pages=off")}) if name in unset else one
        for name, one in requests.items()
    }


def _own_requests(asked: CompareRequest, facts: HostFacts, seed: int) -> tuple[str, dict[str, Model]]:
    names, studies = [arm.name for arm in asked.arms], sorted({arm.study for arm in asked.arms})
    if len(names) < 2:
        raise UsageError(f"only one scenario is given, '{names[0]}'; a comparison needs two or more")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"the name {', '.join(twice)} is used twice; give each scenario a different name")
    if len(studies) > 1:
        raise UsageError(f"scenarios of different studies cannot be compared: {', '.join(f'{a.name} is {a.study}' for a in asked.arms)}")
    request_of = study_of(studies[0]).request_model
    if issubclass(request_of, BlocksRequest) and "compare_setting" not in request_of.model_fields:  # io-profile can measure one server
        raise UsageError(f"a comparison cannot be compared, and {studies[0]} is one; give a scenario for each of its variants")
    given = asked.model_fields_set & set(DatabaseRequest.model_fields)
    if stray := sorted(name.replace("_", "-") for name in (given | (asked.model_fields_set & {"clients"})) - _BOTH):
        raise UsageError(f"--{stray[0]} applies only to --variant; set it in the scenario files")
    # All scenarios get the same share of the host.
    shared = {"host_memory": _free_memory(facts), **{name: getattr(asked, name) for name in given - {"time_budget"}}, "seed": seed}
    requests = {arm.name: _own_request(arm, request_of, shared) for arm in asked.arms}
    for name, request in requests.items():
        if getattr(request, "variant", ()) or getattr(request, "compare_setting", None):
            raise UsageError(
                f"a comparison cannot be compared, and scenario '{name}' is one, because it has variants; give a scenario for each variant"
            )
    return studies[0], requests


def _own_request(arm: ScenarioVariant, request_of: type[Model], shared: Mapping[str, Any]) -> Model:
    """Return the request of a scenario. Its options override those of the comparison."""
    if cluster := sorted(name.replace("_", "-") for name in CLUSTER_FIELDS & set(arm.options)):
        raise UsageError(f"scenario '{arm.name}' sets {', '.join(cluster)}; all scenarios run on the same hosts: set it for the comparison")
    known = {name: value for name, value in shared.items() if name in request_of.model_fields}
    try:
        return request_of.model_validate({**known, **arm.options})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"scenario '{arm.name}': '{where}': {fault['msg'][0].lower()}{fault['msg'][1:]}") from None


def _state(asked: CompareRequest, made: Mapping[str, Prepared]) -> State:
    """Return the state in which the servers start every trial of every variant.

    The state is fresh for loads that write, because they change their database. It is also fresh for variants that differ in more
    than settings and limits, because their data is restored each time the variant changes. Otherwise the servers are restarted.
    """
    if "start_state" in asked.model_fields_set:
        return asked.start_state
    if any(not getattr(one.options, "read_only", True) or getattr(one.options, "state", None) == "fresh" for one in made.values()):
        return "fresh"
    planned = [
        variants.planned_trials(Variant(name="x", study=one.study, options=one.options.model_dump(mode="json"))) for one in made.values()
    ]
    servers = [server for trials in planned for trial in trials for _, _, server in trial.deployment.servers()]
    if servers and all(server.dsn is not None for server in servers):
        return "warm"  # pgherd cannot restart or restore an external server
    contents = {tuple(_content(server) for trial in trials for _, _, server in trial.deployment.servers()) for trials in planned}
    return "restarted" if len(contents) == 1 else "fresh"


def _content(server: Server) -> str:
    return server.model_copy(update={"settings": {}, "transparent_huge_pages": None}).model_dump_json()


def _measured_once(asked: CompareRequest, options: Model, state: State, together: bool) -> Model:
    """Return the options of a variant with one measurement of each point per block.

    The length of a trial depends on the start state. Scenarios keep the length in their files.
    """
    changes: dict[str, Any] = {"repeats": 1, "single_database_repeats": 1, "check_depth": False}
    if not isinstance(options, CompareOptions):  # a single server of io-profile always has a time budget
        changes["budget_seconds"] = None
    if asked.variant or "start_state" in asked.model_fields_set:
        changes["state"] = state
    if asked.variant:
        length, ramp = (prepare_interleaved.SECONDS, prepare_interleaved.RAMP) if together else (LENGTH[state], RAMP)
        changes["seconds"] = parse_seconds(asked.duration) if asked.duration else length
        changes["ramp"] = parse_seconds(asked.warmup) if asked.warmup else ramp
    return options.model_copy(update={name: value for name, value in changes.items() if name in type(options).model_fields})


def _metric(asked: CompareRequest) -> str | None:
    if asked.metric is None:
        # At a given rate all variants have the same throughput. Only the latency differs.
        return "p95" if asked.rate is not None and asked.variant else None
    if asked.metric not in METRICS and not asked.arms:
        raise UsageError(f"--metric {asked.metric}: there is no such metric; use one of {', '.join(METRICS)}")
    return asked.metric


def _timed(asked: CompareRequest, options: CompareOptions) -> CompareOptions:
    """Return the options with the maximum number of blocks: ``--max-blocks``, or the number that fits into the time budget."""
    trials = variants.block_trials(options, 0)
    extra = {state: prepare_interleaved.EXTRA if options.side_by_side else seconds for state, seconds in EXTRA.items()}
    each = sum(trial.seconds() + extra[trial.state] for trial in trials)
    if asked.max_blocks is not None:
        # An explicit number of blocks extends the time budget, unless the user sets a time budget too.
        budget = options.budget_seconds if asked.time_budget else max(options.budget_seconds, 1.5 * each * asked.max_blocks)
        return options.model_copy(update={"most": asked.max_blocks, "budget_seconds": budget})
    budget = options.budget_seconds if asked.time_budget else max(options.budget_seconds, 8 * each)
    return options.model_copy(update={"most": max(1, math.floor(budget / each)), "budget_seconds": budget})


def _said(asked: CompareRequest, options: CompareOptions) -> list[str]:
    """Return sentences that describe the choices for the comparison itself."""
    trials = variants.block_trials(options, 0)
    states = {"warm": "in the state after the previous trial", "restarted": "restarted", "fresh": "restored from the template"}
    metric = METRICS[options.metric or "throughput"].label if (options.metric or "throughput") in METRICS else options.metric
    many = f"{options.most} block{'' if options.most == 1 else 's'}"
    each = f"{len(trials)} trials" if len(trials) > 1 else "one trial"
    found = [
        f"Compared with {options.baseline}: {', '.join(options.variants)}. Each block measures {options.baseline} twice: the A/A pair.",
        *_differences(options),
        *_too_few(options),
        f"At most {many} of {each} in {format_seconds(options.budget_seconds)}; the run ends earlier when {metric} "
        + (
            f"is known to ±{100 * options.precision:.3g} %."
            if options.precision
            else f"has a significant difference, or one of at most {100 * options.equivalence:.3g} % with certainty."
        ),
    ]
    external = any(arm.options.get("server") for arm in options.arms)
    served = all(trial.phases and any(True for _ in trial.deployment.servers()) for trial in trials)
    if served and not options.side_by_side and not external:
        found.append(f"Servers start each trial {states[trials[0].state]}.")
    if asked.variant and asked.vcpus is None and not external:
        vcpus, cores = {arm.options["vcpus"] for arm in options.arms}, options.arms[0].options["cores"]
        if len(vcpus) == 1 and min(vcpus) < cores:
            found.append(f"{min(vcpus):g} vCPU of {cores:g} for the server and its clients; other programs use the rest.")
    return found


def _too_few(options: CompareOptions) -> list[str]:
    """Return a warning if the number of blocks is too small to establish any difference."""
    least, variants = least_pairs(1 - alpha(options)), len(options.variants)
    if options.most >= least:
        return []
    shared = f"{variants} variants share the error rate of 5 %, which requires" if variants > 1 else "an error rate of 5 % requires"
    blocks = f"{options.most} block{'' if options.most == 1 else 's'}"
    return [f"Warning: {blocks} cannot establish a difference of any size: {shared} at least {least}; raise --max-blocks or --time-budget."]


def _differences(options: CompareOptions) -> list[str]:
    """Return a sentence for each option that differs between variants, and sentences on defaults that differ between versions."""
    said = [
        f"Difference: {row['option']} is {', '.join(f'{row[arm.name]} in {arm.name}' for arm in options.arms)}."
        for row in difference_rows(options.model_copy(update={"defaults": {}}))
    ]
    return [*said, *version_defaults.sentences(options.defaults)]


def _merged(made: Mapping[str, Prepared], options: CompareOptions, surroundings: Surroundings, said: Sequence[str]) -> Prepared:
    """Merge the prepared studies of all variants into one for the comparison."""
    first = made[options.baseline]
    return Prepared(
        study="compare",
        options=options,
        surroundings=surroundings,
        thresholds=options.thresholds,
        facts=first.facts,
        installation=first.installation,
        tools=first.tools,
        choices=(*merge_variants.choices({name: one.choices for name, one in made.items()}), *said),
        settings=merge_variants.settings({name: one.settings for name, one in made.items()}),
        host_changes=merge_variants.changes(one.host_changes for one in made.values()),
        confirm=merge_variants.changes(one.confirm for one in made.values()),
        typed=merge_variants.changes(one.typed for one in made.values()),
        holds=merge_variants.holds(one.holds for one in made.values()),
        huge_pages=most_pages(made.values()),
        disk=max(one.disk for one in made.values()),
        memory=max(one.memory for one in made.values()),
    )


def _who(asked: CompareRequest) -> str:
    return "variant" if asked.variant else "scenario"


def read_arguments(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Read scenario files as variants, each named after its file. Raises UsageError if a file cannot be read."""
    found = []
    for file in files:
        scenario = read_scenario(file)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("-.")[:40] or "scenario"
        found.append({"name": name, "study": scenario.study, "options": scenario.options})
    return found
