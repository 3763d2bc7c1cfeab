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

from pgherd.analysis.block_ratios import min_pairs
from pgherd.host.facts import gather
from pgherd.model.base import Model
from pgherd.model.deployment import Server
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import DATABASE, counted_by
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import State, Trial
from pgherd.model.units import format_seconds
from pgherd.node.protocol import Node
from pgherd.prepare import merge, prepared_study, servers
from pgherd.prepare.load import require_rate, require_window
from pgherd.prepare.prepared_study import PreparedStudy, most_pages, thresholds
from pgherd.prepare.requests import FIXED, apply, parse_variant, read_scenario, require_different
from pgherd.studies.compare import prepare_interleaved
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.working_set.options import WorkingSetRequest
from pgherd.study.comparison import variants
from pgherd.study.comparison.metrics import METRICS, at_fixed_rate
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.propose import alpha
from pgherd.study.comparison.request import BlocksRequest, ScenarioVariant
from pgherd.study.comparison.tables import difference_rows
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.shared_options import CLUSTER_FIELDS
from pgherd.study.study import study_of
from pgherd.workloads.user_script import settings_of_contents

BASE = "base"
"""Name of the unchanged request. A single variant is compared with it."""
TIME_BUDGET_S = 260.0
"""Time budget in seconds for two variants and the A/A pair. With copies, starts and the report, the run then ends within five minutes."""
TRIAL_S: Mapping[State, float] = {"warm": 3.0, "restarted": 5.0, "fresh": 8.0}
"""Measured seconds of a trial by the start state of its servers. Short trials allow many blocks. Long transitions need longer trials,
because 70 % of the time should be measurement."""
OVERHEAD_S: Mapping[State, float] = {"warm": 0.5, "restarted": 1.0, "fresh": 2.3}
"""Estimated seconds of a transition and of the end of the drivers, by start state."""
WARMUP_S = 0.5
_SHARED_OPTIONS = frozenset({"seed", "start_state", "run_as", "host_cores", "host_memory", "track", "threshold", "time_budget"})
"""Options that scenarios take from the comparison."""
_ADAPTIVE = "whose trials depend on earlier results"
_NOT_IN_BLOCKS = {"slo": _ADAPTIVE, "tenants": _ADAPTIVE, "tenants_from": _ADAPTIVE, "soak": "whose trials are parts of one long load"}
"""Options whose trials cannot be the blocks of a comparison, with the reason."""
_WITHOUT_DEFAULT = {"isolation": "throughput includes the aggressor's"}
"""Studies whose scenarios have no metric by default, with the reason against throughput."""
_NOT_VARIED = FIXED | {"databases", "efficiency", "bound_by", "soak", "slo", "price", "tenants", "tenants_from", "start_state"}


def prepare(node: Node, request: CompareRequest, dry: bool) -> PreparedStudy:
    """Complete a comparison for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    _require_metric(request)
    limits = thresholds(request.threshold)
    facts = gather(node)
    seed = request.seed if request.seed is not None else random.randrange(2**31)
    study, requests = _requests(request, facts, seed)
    by_variant: dict[str, PreparedStudy] = {}
    for name, variant_request in requests.items():
        try:
            by_variant[name] = prepared_study.prepare(node, study, variant_request, dry=dry)
        except UsageError as error:
            raise UsageError(f"{_variant_kind(request)} '{name}': {error}") from None
    environment = merge.environment({name: prepared.environment for name, prepared in by_variant.items()})
    baseline = next(iter(by_variant))
    metric = request.metric or _default_metric(by_variant)
    plan = prepare_interleaved.choose(request, requests, by_variant, metric)
    state: State = "warm" if plan.in_slices else _state(request, by_variant)
    options = {name: _measured_once(request, prepared.options, state, plan.in_slices) for name, prepared in by_variant.items()}
    options = {
        name: variant.model_copy(update={"container_memory": plan.memory[name]} if plan.in_slices else {})
        for name, variant in options.items()
    }
    for name, variant in options.items():
        _require_transactions(request, name, variant, by_variant[name].pace)
    options = merge.logged_alike(options)
    if plan.in_slices:
        options = {name: prepare_interleaved.with_sampling(variant) for name, variant in options.items()}
    require_different(node, _variant_kind(request), requests, options, ", which the A/A pair shows anyway")
    compare_options = CompareOptions(
        variants=tuple(Variant(name=name, study=study, options=variant.model_dump(mode="json")) for name, variant in options.items()),
        baseline=baseline,
        metric=metric,
        max_blocks=1,
        precision=request.precision,
        equivalence_margin=request.equivalence_margin,
        time_budget=TIME_BUDGET_S * (len(options) + 1) / 3 if request.time_budget is None else request.time_budget,
        compare_findings=bool(request.scenarios),
        interleave="slices" if plan.in_slices else "trials",
        defaults=servers.differing_defaults(node, by_variant),
        seed=seed,
        thresholds=limits,
    )
    compare_options = _with_blocks(request, compare_options)
    merged = _merged(by_variant, compare_options, environment, [*_choices(request, compare_options), plan.explanation])
    if not plan.in_slices:
        return merged
    return replace(merged, disk=prepare_interleaved.disk(by_variant), memory=prepare_interleaved.memory(by_variant, plan.memory))


def _requests(request: CompareRequest, facts: HostFacts, seed: int) -> tuple[str, dict[str, Model]]:
    """Return the study of the variants, and the request of each variant by name, the baseline first."""
    if request.scenarios and request.variant:
        raise UsageError("scenario files and --variant do not go together: compare either files, or variants of one server")
    if request.scenarios:
        return _scenario_requests(request, facts, seed)
    if not request.variant:
        raise UsageError(
            "there is nothing to compare; name variants, such as --variant big:shared_buffers=1GB, or two scenario files (of any study "
            "that compares nothing itself)"
        )
    # All variants get the same share of the host, although the free memory changes while they are completed one after the other.
    set_fields = {
        name: getattr(request, name)
        for name in request.model_fields_set & set(DensityRequest.model_fields) - {"time_budget", "repeats", "min_repeats"}
    }
    cores = request.host_cores or facts.cores
    defaults = {"vcpus": max(1.0, math.floor(cores / 2)) if cores >= 2 else cores, "host_memory": _free_memory(facts)}
    base = DensityRequest.model_validate({**defaults, **set_fields, "databases": (1,), "seed": seed})
    requests: dict[str, Model] = {} if len(request.variant) > 1 else {BASE: base}
    for text in request.variant:
        name, changes = parse_variant(text)
        if name in requests:
            other = " (the unchanged request has this name)" if len(request.variant) == 1 else ""
            raise UsageError(f"--variant {text}: the name '{name}' is used twice{other}; give each variant a different name")
        external = request.dsn or request.servers or {"dsn", "servers"} & set(changes)  # pgherd sets no limits on an external server
        requests[name] = apply(_unlimited(base, set_fields) if external else base, changes, name, fixed=_NOT_VARIED)
    return "density", requests


def _free_memory(facts: HostFacts) -> str:
    """Return the default of ``--host-memory``: 80 % of the available memory."""
    return str(int(facts.memory_available * 0.8))


def _unlimited(base: DensityRequest, set_fields: Mapping[str, Any]) -> DensityRequest:
    """Return the request without the default number of vCPUs. A number that the user sets stays."""
    return base if "vcpus" in set_fields else base.model_copy(update={"vcpus": None})


def _scenario_requests(request: CompareRequest, facts: HostFacts, seed: int) -> tuple[str, dict[str, Model]]:
    names, studies = [scenario.name for scenario in request.scenarios], sorted({scenario.study for scenario in request.scenarios})
    if len(names) < 2:
        raise UsageError(f"only one scenario is given, '{names[0]}'; a comparison needs two or more")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"the name {', '.join(twice)} is used twice; give each scenario a different name")
    if len(studies) > 1:
        raise UsageError(
            f"scenarios of different studies cannot be compared: {', '.join(f'{item.name} is {item.study}' for item in request.scenarios)}"
        )
    request_of = study_of(studies[0]).request_model
    if issubclass(request_of, BlocksRequest) and "compare_setting" not in request_of.model_fields:  # io-profile can measure one server
        raise UsageError(f"a comparison cannot be compared, and {studies[0]} is one; give a scenario for each of its variants")
    if request.metric is None and studies[0] in _WITHOUT_DEFAULT:
        raise UsageError(
            f"scenarios of {studies[0]} have no default metric, because their {_WITHOUT_DEFAULT[studies[0]]}; give --metric "
            f"{study_of(studies[0]).default_metric}, or another finding"
        )
    set_fields = request.model_fields_set & set(DatabaseRequest.model_fields)
    if stray := sorted(name.replace("_", "-") for name in (set_fields | (request.model_fields_set & {"clients"})) - _SHARED_OPTIONS):
        raise UsageError(f"--{stray[0]} applies only to --variant; set it in the scenario files")
    # All scenarios get the same share of the host.
    shared = {"host_memory": _free_memory(facts), **{name: getattr(request, name) for name in set_fields - {"time_budget"}}, "seed": seed}
    requests = {scenario.name: _scenario_request(scenario, request_of, shared) for scenario in request.scenarios}
    for name, variant_request in requests.items():
        if getattr(variant_request, "variant", ()) or getattr(variant_request, "compare_setting", None):
            raise UsageError(
                f"a comparison cannot be compared, and scenario '{name}' is one, because it has variants; give a scenario for each variant"
            )
        if reason := _not_in_blocks(variant_request):
            raise UsageError(f"scenario '{name}' {reason}; run each scenario, then compare the runs with 'pgherd gate'")
    return studies[0], requests


def _not_in_blocks(request: Model) -> str:
    """Return the reason why the trials of a scenario cannot be the blocks of a comparison. '' if they can."""
    if isinstance(request, WorkingSetRequest) and (request.adds_sizes or len(set(request.vary)) > 1):
        return f"does not list the sizes of a single sweep (vary), {_ADAPTIVE}"
    option = next((option for option in _NOT_IN_BLOCKS if getattr(request, option, None)), None)
    return "" if option is None else f"sets {option}, {_NOT_IN_BLOCKS[option]}"


def _scenario_request(scenario: ScenarioVariant, request_of: type[Model], shared: Mapping[str, Any]) -> Model:
    """Return the request of a scenario. Its options override those of the comparison."""
    if cluster := sorted(name.replace("_", "-") for name in CLUSTER_FIELDS & set(scenario.options)):
        raise UsageError(
            f"scenario '{scenario.name}' sets {', '.join(cluster)}; all scenarios run on the same hosts: set it for the comparison"
        )
    known = {name: value for name, value in shared.items() if name in request_of.model_fields}
    try:
        return request_of.model_validate({**known, **scenario.options})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"scenario '{scenario.name}': '{where}': {fault['msg'][0].lower()}{fault['msg'][1:]}") from None


def _state(request: CompareRequest, by_variant: Mapping[str, PreparedStudy]) -> State:
    """Return the state in which the servers start every trial of every variant.

    The state is fresh for loads that write, because they change their database. It is also fresh for variants that differ in more
    than settings and limits, because their data is restored each time the variant changes. Otherwise the servers are restarted.
    External servers stay warm.
    """
    if "start_state" in request.model_fields_set:
        return request.start_state
    planned = [_planned(prepared) for prepared in by_variant.values()]
    servers = [server for trials in planned for trial in trials for _, _, server in trial.deployment.servers()]
    if servers and all(server.dsn is not None for server in servers):
        return "warm"  # pgherd cannot restart or restore an external server
    if any(
        not getattr(prepared.options, "read_only", True) or getattr(prepared.options, "start_state", None) == "fresh"
        for prepared in by_variant.values()
    ):
        return "fresh"
    contents = {tuple(_content(server) for trial in trials for _, _, server in trial.deployment.servers()) for trials in planned}
    return "restarted" if len(contents) == 1 else "fresh"


def _planned(prepared: PreparedStudy) -> tuple[Trial, ...]:
    return variants.planned_trials(Variant(name="x", study=prepared.study, options=prepared.options.model_dump(mode="json")))


def _content(server: Server) -> str:
    return server.model_copy(update={"settings": settings_of_contents(server), "transparent_huge_pages": None}).model_dump_json()


def _measured_once(request: CompareRequest, options: Model, state: State, in_slices: bool) -> Model:
    """Return the options of a variant with one measurement of each point per block.

    The length of a trial depends on the start state. Scenarios keep the length in their files.
    """
    changes: dict[str, Any] = {"repeats": 1, "double_iodepth": False}
    if not isinstance(options, CompareOptions):  # a single server of io-profile always has a time budget
        changes["time_budget"] = None
    if request.variant or "start_state" in request.model_fields_set:
        changes["start_state"] = state
    if request.variant:
        length, ramp = (prepare_interleaved.MEASURED_S, prepare_interleaved.WARMUP_S) if in_slices else (TRIAL_S[state], WARMUP_S)
        changes["duration"] = length if request.duration is None else float(request.duration)
        changes["warmup"] = ramp if request.warmup is None else float(request.warmup)
    return options.model_copy(update={name: value for name, value in changes.items() if name in type(options).model_fields})


def _require_transactions(request: CompareRequest, name: str, options: Model, pace: float | None) -> None:
    """Require that a trial of a variant has transactions. Its length is known only now, and may be shorter than that of its study."""
    try:
        require_rate(getattr(options, "rate", None), getattr(options, "duration", None))
        require_window(pace, getattr(options, "duration", None))
    except UsageError as error:
        raise UsageError(f"{_variant_kind(request)} '{name}': {error}") from None


def _require_metric(request: CompareRequest) -> None:
    if request.metric is not None and request.metric not in METRICS and not request.scenarios:
        raise UsageError(f"--metric {request.metric}: there is no such metric; use one of {', '.join(METRICS)}")


def _default_metric(by_variant: Mapping[str, PreparedStudy]) -> str | None:
    """Return p95 if all loads are of databases at a given rate. Throughput is then the same, and only the latency differs."""
    trials = [trial for prepared in by_variant.values() for trial in _planned(prepared)]
    drivers = {load.driver for trial in trials for phase in trial.phases for load in phase.loads.values()}
    of_databases = all(counted_by(driver) is DATABASE for driver in drivers)
    return "p95" if of_databases and all(map(at_fixed_rate, trials)) else None


def _with_blocks(request: CompareRequest, options: CompareOptions) -> CompareOptions:
    """Return the options with the maximum number of blocks: ``--max-blocks``, or the number that fits into the time budget."""
    trials = variants.block_trials(options, 0)
    extra = {state: prepare_interleaved.OVERHEAD_S if options.in_slices else seconds for state, seconds in OVERHEAD_S.items()}
    each = sum(trial.seconds() + extra[trial.state] for trial in trials)
    if request.max_blocks is not None:
        # An explicit number of blocks extends the time budget, unless the user sets a time budget too.
        budget = options.time_budget if request.time_budget is not None else max(options.time_budget, 1.5 * each * request.max_blocks)
        return options.model_copy(update={"max_blocks": request.max_blocks, "time_budget": budget})
    budget = options.time_budget if request.time_budget is not None else max(options.time_budget, 8 * each)
    return options.model_copy(update={"max_blocks": max(1, math.floor(budget / each)), "time_budget": budget})


def _choices(request: CompareRequest, options: CompareOptions) -> list[str]:
    """Return sentences that describe the choices for the comparison itself."""
    trials = variants.block_trials(options, 0)
    states = {"warm": "in the state after the previous trial", "restarted": "restarted", "fresh": "restored from the template"}
    metric = METRICS[options.metric or "throughput"].label if (options.metric or "throughput") in METRICS else options.metric
    many = f"{options.max_blocks} block{'' if options.max_blocks == 1 else 's'}"
    each = f"{len(trials)} trials" if len(trials) > 1 else "one trial"
    sentences = [
        f"Compared with {options.baseline}: {', '.join(options.other_variants)}. "
        f"Each block measures {options.baseline} twice: the A/A pair.",
        *_differences(options),
        *_too_few_blocks(options),
        f"At most {many} of {each} in {format_seconds(options.time_budget)}; the run ends earlier when {metric} "
        + (
            f"is known to ±{100 * options.precision:.3g} %."
            if options.precision
            else f"has a significant difference, or one of at most {100 * options.equivalence_margin:.3g} % with certainty."
        ),
    ]
    external = any(variant.options.get("dsn") for variant in options.variants)
    served = all(trial.phases and any(True for _ in trial.deployment.servers()) for trial in trials)
    if served and not options.in_slices and not external:
        sentences.append(f"Servers start each trial {states[trials[0].state]}.")
    if request.variant and request.vcpus is None and not external:
        vcpus, cores = {variant.options["vcpus"] for variant in options.variants}, options.variants[0].options["host_cores"]
        if len(vcpus) == 1 and min(vcpus) < cores:
            sentences.append(f"{min(vcpus):g} vCPU of {cores:g} for the server and its clients; other programs use the rest.")
    return sentences


def _too_few_blocks(options: CompareOptions) -> list[str]:
    """Return a warning if the number of blocks is too small to establish any difference."""
    minimum, variants = min_pairs(1 - alpha(options)), len(options.other_variants)
    if options.max_blocks >= minimum:
        return []
    shared = f"{variants} variants share the error rate of 5 %, which requires" if variants > 1 else "an error rate of 5 % requires"
    blocks = f"{options.max_blocks} block{'' if options.max_blocks == 1 else 's'}"
    return [
        f"Warning: {blocks} cannot establish a difference of any size: {shared} at least {minimum}; raise --max-blocks or --time-budget."
    ]


def _differences(options: CompareOptions) -> list[str]:
    """Return a sentence for each option that differs between variants, and sentences on defaults that differ between versions."""
    sentences = [
        f"Difference: {row['option']} is {', '.join(f'{row[variant.name]} in {variant.name}' for variant in options.variants)}."
        for row in difference_rows(options.model_copy(update={"defaults": {}}))
    ]
    return [*sentences, *servers.describe_defaults(options.defaults)]


def _merged(
    by_variant: Mapping[str, PreparedStudy], options: CompareOptions, environment: RunEnvironment, sentences: Sequence[str]
) -> PreparedStudy:
    """Merge the prepared studies of all variants into one for the comparison."""
    first = by_variant[options.baseline]
    return PreparedStudy(
        study="compare",
        options=options,
        environment=environment,
        thresholds=options.thresholds,
        facts=first.facts,
        installation=first.installation,
        tools=first.tools,
        defaults_chosen=(*merge.choices({name: prepared.defaults_chosen for name, prepared in by_variant.items()}), *sentences),
        settings=merge.settings({name: prepared.settings for name, prepared in by_variant.items()}),
        host_changes=merge.changes(prepared.host_changes for prepared in by_variant.values()),
        confirm=merge.changes(prepared.confirm for prepared in by_variant.values()),
        typed=merge.changes(prepared.typed for prepared in by_variant.values()),
        holds=merge.holds(prepared.holds for prepared in by_variant.values()),
        huge_pages=most_pages(by_variant.values()),
        disk=max(prepared.disk for prepared in by_variant.values()),
        memory=max(prepared.memory for prepared in by_variant.values()),
    )


def _variant_kind(request: CompareRequest) -> str:
    return "variant" if request.variant else "scenario"


def read_arguments(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Read scenario files as variants, each named after its file. Raises UsageError if a file cannot be read."""
    variants_read = []
    for file in files:
        scenario = read_scenario(file)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("-.")[:40] or "scenario"
        variants_read.append({"name": name, "study": scenario.study, "options": scenario.options})
    return variants_read
