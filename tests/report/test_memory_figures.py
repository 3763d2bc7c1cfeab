import importlib.util
import json
from pathlib import Path

import pytest

from pgherd.model.finding import Analysis
from pgherd.model.result import MemoryAccount
from pgherd.model.run import RunRecord, Surroundings, Swap
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable

MB = 2**20
NAMES = ("memory", "swapping", "memory_pressure")


def _module(name: str):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = _module("test_memory_series")


def inputs(directory, results, *, swap=True, memory=800, study="consolidation"):
    around = Surroundings(runtime="cgroup", cores=2, memory=memory * MB, swap=Swap(kind="zram", size=MB) if swap else None)
    record = RunRecord(run="r", study=study, options={}, surroundings=around, started=0, pgherd="0")
    return FigureInputs(record, Analysis(answer="", grade="A"), results, directory)


def draw(name, given):
    figure = drawing.builders("consolidation")[name](given)
    return figure, json.dumps(drawing.specification(figure, validate=True))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_valid_and_drawn(name, tmp_path) -> None:
    given = inputs(tmp_path, [MADE.result(tmp_path, MADE.samples())])
    figure, text = draw(name, given)
    assert "scheme 3, rate 0.4" in text
    assert drawing.svg(figure, prefix=name).startswith("<svg")


def test_the_stack_names_every_kind_and_phase(tmp_path) -> None:
    figure, text = draw("memory", inputs(tmp_path, [MADE.result(tmp_path, MADE.samples())]))
    assert figure.title == "Containers share 400 MB; one has up to 100 MB swapped out"
    for words in ("a: shared memory", "b: page cache", "first", "second", "a/pg: in its balloon"):
        assert words in text
    assert figure.sources == (drawing.SAMPLES,)


def test_what_was_accounted_for_is_said(tmp_path) -> None:
    done = MADE.result(tmp_path, MADE.samples())
    account = MemoryAccount(seconds=5, worst=-0.0123, worst_at=0, budget=1, containers=1, unallocated=0)
    done = done.model_copy(update={"phases": [one.model_copy(update={"memory": account}) for one in done.phases]})
    figure, _ = draw("memory", inputs(tmp_path, [done]))
    assert "within 1.23 % in every second" in figure.caption


def test_compression_and_waiting_are_in_the_titles(tmp_path) -> None:
    given = inputs(tmp_path, [MADE.result(tmp_path, MADE.samples())])
    assert draw("swapping", given)[0].title == "The run's swap holds up to 90 MB, compressed 3.0 times where it held most"
    assert draw("memory_pressure", given)[0].title == "Somebody in b waits for memory up to 25 % of a second: scheme 3, rate 0.4"


def test_trials_of_least_memory_that_differ_in_one_thing_stand_beside_each_other(tmp_path) -> None:
    points = [({"scheme": 1, "rate": 0.4}, 400), ({"scheme": 3, "rate": 0.4}, 400), ({"scheme": 3, "rate": 0.0}, 800)]
    results = [
        MADE.result(tmp_path, MADE.samples(), name=f"000{i}", memory=memory, point=point) for i, (point, memory) in enumerate(points, 1)
    ]
    _, text = draw("memory", inputs(tmp_path, results))
    assert "scheme 1, rate 0.4" in text and "scheme 3, rate 0.4" in text and "rate 0.0" not in text and "rate 0:" not in text


def test_many_containers_are_one_band_each(tmp_path) -> None:
    def rows():
        for row in MADE.samples():
            yield row
            if row[2] == "container:b":
                yield from ((row[0], row[1], f"container:{name}", row[3]) for name in "cdef")

    _, text = draw("memory", inputs(tmp_path, [MADE.result(tmp_path, rows())]))
    assert '"band": "c"' in text.replace("\\", "") and "page cache: " not in text and "c: shared memory" not in text


def test_other_runs_miss_nothing(tmp_path) -> None:
    done = MADE.result(tmp_path, MADE.samples())
    for given in (inputs(tmp_path, [done], swap=False, memory=400), inputs(None, [done])):
        with pytest.raises(FigureUnavailable) as reason:
            draw("memory", given)
        assert str(reason.value) == ""
    with pytest.raises(FigureUnavailable, match="no trial was finished"):
        draw("memory", inputs(tmp_path, [done.model_copy(update={"phases": []})]))


def test_less_memory_alone_is_reason_enough(tmp_path) -> None:
    done = MADE.result(tmp_path, MADE.samples(zram=False))
    given = inputs(tmp_path, [done], swap=False)
    assert draw("memory", given)[0].title
    with pytest.raises(FigureUnavailable, match="no swap of its own"):
        draw("swapping", given)
