import json

import pytest

from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders, specification
from pgherd.studies.isolation.analyse import analyse
from pgherd.studies.isolation.figures import fairness, when, who


def inputs(options, results, directory=None):
    analysis = analyse(options, results)
    record = RunRecord(run="r", study="isolation", options={}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=results, directory=directory)


def rows(figure):
    datasets = specification(figure, validate=True)["datasets"].values()
    return [row for dataset in datasets for row in (json.loads(dataset) if isinstance(dataset, str) else dataset)]


def test_who_suffered(simulate):
    figure = who(inputs(*simulate(factors={("quota", "cpu"): None})))
    points = {(row["scheme"], row["aggressor"]): row for row in rows(figure) if "scheme" in row}
    assert points["shared-server", "wal"]["x"] == pytest.approx(8, rel=0.1)
    assert points["shared-server", "wal"]["low"] < 8 < points["shared-server", "wal"]["high"]
    assert figure.caption == "No p99 is known for quota/cpu."


def with_progress(results, directory):
    """Write the victim's progress: the latency of a second is its number, in a rerun 100 more."""
    with_files = []
    for result in results:
        phase = result.phases[0]
        targets = [target.model_copy(update={"raw": [f"{target.target}/stderr"]}) for target in phase.targets]
        for target in targets:
            file = directory / "trials" / result.id / target.target / "stderr"
            file.parent.mkdir(parents=True)
            more = 100 * result.trial.reason.startswith("rerun")
            lines = [
                f"progress: {phase.start + second:.3f} s, 100.0 tps, lat {second + more:.3f} ms stddev 1.000, 0 failed, lag 0.100 ms"
                for second in range(20)
            ]
            file.write_text("\n".join(lines) + "\n")
        with_files.append(result.model_copy(update={"phases": [phase.model_copy(update={"targets": targets})]}))
    return with_files


def test_when_it_suffered(simulate, tmp_path):
    options, results = simulate({"repeats": 1})
    found = rows(when(inputs(options, with_progress(results, tmp_path), tmp_path)))
    assert {row["next to"] for row in found} == {"alone", "cpu", "wal"}
    assert {(row["second"], row["latency"]) for row in found} == {(second, second) for second in range(1, 16)}


def test_a_clean_rerun_is_drawn_in_place_of_a_tainted_trial(simulate, tmp_path):
    """All trials next to cpu are tainted, and of those next to wal only the planned one."""
    options, results = simulate(
        {"repeats": 1, "schemes": ("quota",)},
        taint=lambda trial: trial.point["aggressor"] == "cpu" or (trial.point["aggressor"] == "wal" and trial.reason == "planned"),
    )
    figure = when(inputs(options, with_progress(results, tmp_path), tmp_path))
    assert {(row["next to"], row["latency"] - row["second"]) for row in rows(figure)} == {("alone", 0), ("cpu (tainted)", 0), ("wal", 100)}
    dashes = specification(figure, validate=True)["vconcat"][0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dashes["domain"], dashes["range"], strict=True)) == {"alone": [1, 0], "cpu (tainted)": [7, 3], "wal": [1, 0]}


def test_without_data_there_are_no_figures(make_options, simulate, tmp_path):
    with pytest.raises(FigureUnavailable, match="no p99 ratio is known"):
        who(inputs(make_options(), []))
    with pytest.raises(FigureUnavailable, match="not part of the run directory"):
        when(inputs(*simulate({"repeats": 1}), tmp_path))
    with pytest.raises(FigureUnavailable):
        fairness(inputs(make_options(), []))
    assert {"isolation", "victim_over_time"} <= set(builders("isolation"))
