"""Reader of run directories of schema ``pgherd/run/1``: gives their documents the names of this version. Pure.

The names in run directories changed once. ``version_1.json`` lists former and present names. No present name is a former one, so
``METRICS`` and ``ENTITIES`` may be applied to samples of any version. Findings and tables are not translated: an analysis is made
anew from the trials (see ``pgherd.study.analyse_run.refreshed``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

SCHEMA: Final = "pgherd/run/1"
"""Schema of the run directories that this module reads."""

_NAMES: Final[dict[str, Any]] = json.loads(files("pgherd.store").joinpath("version_1.json").read_text())

METRICS: Final[Mapping[str, str]] = _NAMES["metrics"]
"""Former name of a metric → name, in samples and in a trial's metrics."""

ENTITIES: Final[Mapping[str, str]] = _NAMES["entities"]
"""Former kind of entity → kind. The kind is the part of an entity before its first colon."""

_ANALYSIS_TEXTS = ("answer", "grade", "warnings", "look_at")


def run_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's record with present names. Its analysis keeps the texts only. Raises KeyError or TypeError for other documents."""
    run = _fields("run", document)
    run["study"] = _NAMES["studies"].get(run["study"], run["study"])
    run["options"] = _options(run["study"], run["options"])
    if run.get("environment"):
        run["environment"] = _fields("environment", run["environment"])
        if run["environment"].get("vm_memory_policy"):
            run["environment"]["vm_memory_policy"] = _fields("vm_memory_policy", run["environment"]["vm_memory_policy"])
    run["thresholds"] = _fields("thresholds", run.get("thresholds", {}))
    run["proposals"] = [
        {**proposal, "trials": [_trial_key(run["study"], key) for key in proposal["trials"]]} for proposal in run.get("proposals", [])
    ]
    if run.get("analysis"):
        run["analysis"] = _fields("analysis", {name: text for name, text in run["analysis"].items() if name in _ANALYSIS_TEXTS})
    return run


def is_former_trial(data: bytes) -> bool:
    """Return True if the contents of a ``trial.json`` are of the former schema."""
    return b'"verdicts":' in data


def trial_document(study: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's result with present names.

    Args:
        study: name of the run's study, as in this version.
        document: contents of ``trial.json``.

    Raises:
        KeyError, TypeError: it is no result of a trial.
    """
    result = _fields("result", document)
    trial = result["trial"] = _fields("trial", result["trial"])
    trial["point"] = _point(study, trial["point"])
    trial["validity_checks"] = [_NAMES["check_names"].get(name, name) for name in trial["validity_checks"]]
    deployment = trial["deployment"]
    trial["deployment"] = {
        **deployment,
        "hosts": [
            {**_fields("host", host), "containers": [_container(container) for container in host.get("containers", ())]}
            for host in deployment["hosts"]
        ],
    }
    trial["phases"] = [_phase(phase) for phase in trial["phases"]]
    result["phases"] = [_measured_phase(phase) for phase in result["phases"]]
    result["probe"] = _renamed(result.get("probe", {}), _NAMES["readings"])
    result["oom_kills"] = [_fields("kill", kill) for kill in result["oom_kills"]]
    result["checks"] = [_check(check) for check in result["checks"]]
    return result


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def _fields(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of this kind with present field names and values."""
    tokens = _NAMES["tokens"].get(kind, {})
    return {name: _token(tokens.get(name), value) for name, value in _renamed(values, _NAMES["fields"].get(kind, {})).items()}


def _token(tokens: Mapping[str, Any] | None, value: Any) -> Any:
    """Return the present value. A list is translated by item. JSON names booleans and integers by text."""
    if tokens is None:
        return value
    if isinstance(value, list):
        return [_token(tokens, item) for item in value]
    return tokens.get(json.dumps(value) if isinstance(value, bool | int) else value, value) if isinstance(value, str | int) else value


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    changed = _fields("container", container)
    if changed.get("vm"):
        changed["vm"] = _fields("vm", changed["vm"])
    return changed


def _phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    changed = _fields("phase", phase)
    changed["loads"] = {target: _fields("load", load) for target, load in changed["loads"].items()}
    if changed.get("slices"):
        changed["slices"] = {**changed["slices"], "of": {_variant(name): container for name, container in changed["slices"]["of"].items()}}
    return changed


def _measured_phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {_entity(name): _renamed(values, METRICS) for name, values in phase.get("metrics", {}).items()}
    return {**phase, "metrics": metrics, "targets": [_fields("target", target) for target in phase["targets"]]}


def _entity(name: str) -> str:
    kind, colon, rest = name.partition(":")
    return ENTITIES.get(kind, kind) + colon + rest


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    changed = _fields("check", check)
    return {**changed, "name": _NAMES["check_names"].get(changed["name"], changed["name"])}


def _variant(name: str) -> str:
    """Return the name of a variant. The second baseline ended in ``again``."""
    return f"{name.removesuffix(' again')} (A/A)" if name.endswith(" again") else name


def _options(study: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete options of a study. The options of its variants are those of the variants' study."""
    table = _NAMES["options"]
    names = {**table["fields"]["*"], **table["fields"].get(study, {})}
    changed = _renamed({name: value for name, value in options.items() if names.get(name, name) is not None}, names)
    changed = {name: _token(table["values"].get(study, {}).get(name), value) for name, value in changed.items()}
    if "thresholds" in changed:
        changed["thresholds"] = _fields("thresholds", changed["thresholds"])
    directory = changed.pop("wal_dir", None)
    if directory is not None:
        changed["volumes"] = [{"name": "wal", "path": directory}, *changed["volumes"]]
        changed["roles"] = {**changed["roles"], "wal": "wal"}
    if isinstance(changed.get("variants"), list):
        changed["variants"] = [
            {**variant, "options": _options(variant["study"], variant["options"])} if "study" in variant else variant
            for variant in changed["variants"]
        ]
    if study == "consolidation":  # its keys are layouts
        changed["unavailable"] = {_token(table["values"][study]["schemes"], k): v for k, v in changed.get("unavailable", {}).items()}
    return changed


def _point(study: str, point: Mapping[str, Any]) -> dict[str, Any]:
    table = _NAMES["points"]
    changed = _renamed(point, table["names"].get(study, {}))
    changed = {name: _token(table["values"].get(study, {}).get(name), value) for name, value in changed.items()}
    return {name: _variant(value) if name == "variant" else value for name, value in changed.items()}


def _trial_key(study: str, key: str) -> str:
    """Return a trial's key (``databases=4#2``) by the names of its coordinates."""
    text, _, repeat = key.rpartition("#")
    point = _point(study, dict(part.partition("=")[::2] for part in text.split(",")))
    return ",".join(f"{name}={value}" for name, value in sorted(point.items())) + f"#{repeat}"
