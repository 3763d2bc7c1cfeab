"""Scaling models as findings, table rows, curves and warnings, for density, scaling and ``pgherd fit``. Pure."""

from __future__ import annotations

import math
from typing import Any

from pgherd.analysis.model_selection import MODELS, ModelSelection
from pgherd.analysis.scaling_model import Fit
from pgherd.model.analysis import Finding

Row = dict[str, Finding | str | int | float | None]

_SHORT = {"usl": "USL", "piecewise-linear": "piecewise linear"}
_TITLES = {model.name: model.title for model in MODELS}


def model_findings(
    selection: ModelSelection, load: str = "databases", throughput: str = "tps", confidence: float = 0.95
) -> dict[str, Finding]:
    """Return the findings of the models, each with its interval or the reason for a missing number.

    Names: usl_lambda, usl_sigma, usl_kappa, usl_peak_load, knee, slope_before_knee and slope_after_knee.
    """
    findings: dict[str, Finding] = {}
    for name, model, parameter, unit in (
        ("usl_lambda", "usl", "lambda", f"{throughput} per {_singular(load)}"),
        ("usl_sigma", "usl", "sigma", "ratio"),
        ("usl_kappa", "usl", "kappa", "ratio"),
        ("usl_peak_load", "usl", "peak", load),
        ("knee", "piecewise-linear", "knee", load),
        ("slope_before_knee", "piecewise-linear", "a", f"{throughput} per {_singular(load)}"),
        ("slope_after_knee", "piecewise-linear", "b", f"{throughput} per {_singular(load)}"),
    ):
        fit = selection.get(model)
        if fit is None:
            note = next((text for text in selection.warnings if text.startswith(f"the {_TITLES[model]} model ")), "not fitted")
            findings[name] = Finding(value=None, unit=unit, n=0, note=note)
        elif parameter == "peak":
            findings[name] = _peak(fit, unit, confidence)
        elif parameter == "knee":
            findings[name] = _knee(fit, unit, confidence, selection)
        elif parameter == "b" and not _has_knee(fit, selection):
            findings[name] = Finding(
                value=None, unit=unit, n=fit.n, method=fit.model.title, note="the data show no knee, so there is no second slope"
            )
        else:
            findings[name] = _finding(fit, parameter, fit.parameters[parameter], unit, confidence, _parameter_note(fit, parameter))
    return findings


def model_rows(selection: ModelSelection, load: str = "databases", confidence: float = 0.95) -> list[Row]:
    """Return one row per model: model, parameters (text with intervals), aicc, relative_error, knee, peak, selected (1 or 0)."""
    return [
        {
            "model": fit.model.name,
            "parameters": ", ".join(_parameter_text(fit, name) for name in fit.parameters),
            "aicc": fit.aicc,
            "relative_error": fit.relative_error,
            "knee": _knee(fit, load, confidence, selection),
            "peak": _peak(fit, load, confidence),
            "selected": int(selection.best is not None and fit.model.name == selection.best.model.name),
        }
        for fit in selection.fits
    ]


def model_curves(selection: ModelSelection, largest: float, points: int = 80) -> dict[str, Any]:
    """Return each model's curve up to the largest load, by name: {'n': [...], 'x': [...]}. 'best' is the name of the selected model,
    'compared' the number of models that it was selected from.

    The knee of a piecewise linear model is one of its points, so that the bend is drawn exactly.
    """
    curves: dict[str, Any] = {}
    for fit in selection.fits:
        loads = {largest * i / points for i in range(points + 1)}
        if fit.knee is not None and fit.knee < largest:
            loads.add(fit.knee)
        ordered = sorted(loads)
        curves[fit.model.name] = {"n": ordered, "x": fit.predict(ordered)}
    curves["best"] = selection.best.model.name if selection.best else None
    curves["compared"] = len(selection.akaike)
    return curves


def model_warnings(selection: ModelSelection) -> list[str]:
    """Return the warnings of the models. Each starts with the model's name."""
    return [
        *(f"{_SHORT.get(fit.model.name, fit.model.name)}: {text}" for fit in selection.fits for text in fit.warnings),
        *(text[0].upper() + text[1:] for text in selection.warnings),
    ]


def _singular(load: str) -> str:
    return load[:-1] if load.endswith("s") else load


def _finding(fit: Fit, parameter: str, value: float, unit: str, confidence: float, note: str) -> Finding:
    method = f"{fit.model.title}, {fit.weights}-weighted bounded least squares"
    low, high = fit.intervals.get(parameter, (None, None))
    notes = [note] if note else []
    if low is None:
        notes.append("no interval: too few observations, or not requested")
    elif high is None or not math.isfinite(high):
        notes.append(f"no interval: its upper end is unbounded in resamples of the data (lower end {low:.4g})")
        low = high = None
    else:
        method += ", parametric bootstrap"
    text = "; ".join(notes)
    return Finding(
        value=value, unit=unit, low=low, high=high, confidence=None if low is None else confidence, n=fit.n, method=method, note=text
    )


def _peak(fit: Fit, unit: str, confidence: float) -> Finding:
    note = "the model has no peak"
    if fit.peak is not None and fit.peak_in_data:
        low, high = fit.intervals.get("peak", (fit.peak, fit.peak))
        if math.isfinite(high):
            return _finding(fit, "peak", fit.peak, unit, confidence, "")
        note = f"the model's peak at N={fit.peak:.3g} is not reported: in resamples of the data it is anywhere above {low:.3g}"
    elif fit.peak is not None:
        where = f"beyond the largest measured load ({fit.largest:g})"
        if fit.peak < fit.smallest:
            where = f"below the smallest measured load ({fit.smallest:g})"
        note = f"the model's peak at N={fit.peak:.3g} is {where}, so it is not reported"
    return Finding(value=None, unit=unit, n=fit.n, method=fit.model.title, note=note)


def _has_knee(fit: Fit, selection: ModelSelection) -> bool:
    """Return True if a fit's knee can be reported.

    Not if the linear model was selected. Not if resamples of the data have no knee, unless the knee's model was selected.
    """
    best = selection.best.model.name if selection.best else None
    bounded = math.isfinite(fit.intervals.get("knee", (0.0, 0.0))[1])
    return fit.knee is not None and best != "linear" and (bounded or best == fit.model.name)


def _knee(fit: Fit, unit: str, confidence: float, selection: ModelSelection) -> Finding:
    if fit.knee is None or not _has_knee(fit, selection):
        note = "the data show no knee" if fit.model.name == "piecewise-linear" else "the model has no knee"
        if fit.knee is not None:
            note = f"the model's knee at N={fit.knee:.3g} is not reported: "
            note += "the linear model fits as well, or resamples of the data have no knee"
        return Finding(value=None, unit=unit, n=fit.n, method=fit.model.title, note=note)
    note = "; ".join(text for text in fit.warnings if "only one load" in text)
    return _finding(fit, "knee", fit.knee, unit, confidence, note)


def _parameter_note(fit: Fit, parameter: str) -> str:
    slope = {"a": "the first slope ", "b": "the second slope "}.get(parameter)
    return "; ".join(
        text
        for text in fit.warnings
        if text.startswith(f"{parameter} ") or f"and {parameter} are not" in text or (slope is not None and slope in text)
    )


def _parameter_text(fit: Fit, name: str) -> str:
    value = f"{name} = {fit.parameters[name]:.4g}"
    low, high = fit.intervals.get("knee" if name == "k" else name, (None, None))
    return value if low is None or high is None else f"{value} ({low:.3g} to {high:.3g})"
