import importlib.util
import json
from pathlib import Path

import pytest

from pgherd.analysis.memory_effects import Effects
from pgherd.model.deployment import Deployment, GuestMachine
from pgherd.model.finding import Analysis
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.guest_memory_figures import BANDS, bands


def _module(name: str):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = _module("test_guest_memory_series")


def inputs(directory, results):
    record = RunRecord(run="r", study="consolidation", options={}, started=0, pgherd="0")
    return FigureInputs(record, Analysis(answer="", grade="A"), results, directory)


def draw(given):
    figure = drawing.builders("density")["guest_memory"](given)
    return figure, json.dumps(drawing.specification(figure, validate=True)).replace("\\", "")


def test_it_says_who_gives_up_what(tmp_path) -> None:
    figure, text = draw(inputs(tmp_path, [MADE.result(tmp_path, MADE.samples())]))
    assert figure.title == (
        "a gives up to 330 MB of its 1000 MB by its balloon, up to 220 MB of it from a database; "
        "the host compresses or swaps up to 100 MB of b"
    )
    assert "scheme 3: a" in text and "scheme 3: b" in text and "first" in text
    assert all(band in text for band in BANDS)
    assert "within 0" in figure.caption and figure.sources == (drawing.SAMPLES,)
    assert drawing.svg(figure, prefix="guest").startswith("<svg")


def test_no_balloon_is_said(tmp_path) -> None:
    rows = [
        (t, sampler, entity, values | ({"guest.actual": values["guest.memory"]} if "guest.memory" in values else {}))
        for t, sampler, entity, values in MADE.samples()
    ]
    figure, _ = draw(inputs(tmp_path, [MADE.result(tmp_path, rows)]))
    assert figure.title.startswith("No guest gives up memory by its balloon")


def test_the_stack_is_the_guests_memory() -> None:
    one = Effects(1000, 400, 50, 250, 90, 30, 100, 80)
    assert list(bands(one)) == list(BANDS) and sum(bands(one).values()) == 1000
    balloon = {name: size for name, size in bands(one).items() if name.startswith("balloon: ")}
    assert list(balloon.values()) == [50, 250] and sum(balloon.values()) == one.ballooned, "the database's part lies within the balloon"
    assert sum(bands(Effects(1000, 900, 300, 0, 0, 0, 0, -200)).values()) == 1200, "more than there is stands out of the frame"


def test_where_the_group_stands_for_the_process_it_is_said(tmp_path) -> None:
    figure, _ = draw(inputs(tmp_path, [MADE.result(tmp_path, MADE.samples(process=False))]))
    assert "its hypervisor's own memory included" in figure.caption


def test_merged_pages_are_said_to_be_counted_in_each_guest(tmp_path) -> None:
    found = MADE.result(tmp_path, MADE.samples())
    (host,) = found.trial.deployment.hosts
    asked = tuple(one.model_copy(update={"guest": GuestMachine(merge=True)}) for one in host.containers)
    deployment = Deployment(hosts=(host.model_copy(update={"containers": asked}),))
    merging = found.model_copy(update={"trial": found.trial.model_copy(update={"deployment": deployment})})
    assert "Pages merged by KSM count in each guest" in draw(inputs(tmp_path, [merging]))[0].caption
    assert "KSM" not in draw(inputs(tmp_path, [found]))[0].caption


def test_runs_without_guests_miss_nothing(tmp_path) -> None:
    done = MADE.result(tmp_path, MADE.samples(), runtime="cgroup")
    for given in (inputs(tmp_path, [done]), inputs(None, [done])):
        with pytest.raises(FigureUnavailable) as reason:
            draw(given)
        assert str(reason.value) == ""


def test_guests_that_were_not_seen_are_missed(tmp_path) -> None:
    done = MADE.result(tmp_path, MADE.samples(balloon=False))
    with pytest.raises(FigureUnavailable, match="not seen"):
        draw(inputs(tmp_path, [done]))
