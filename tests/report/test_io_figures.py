import importlib.util
import sys
from pathlib import Path

import pytest

from pgherd.analysis.histogram import histogram
from pgherd.metrics.server_statistics import WAIT_CLASSES
from pgherd.model.analysis import Analysis, Check
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report import chart_style, drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.io_figures import WAIT_COLOURS, io, io_gaps, io_latency, io_sizes, io_waiting, waits


@pytest.fixture(scope="module")
def simulator():
    spec = importlib.util.spec_from_file_location("storage_conftest", Path(__file__).parents[1] / "studies/io_profile/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["storage_conftest"] = module
    spec.loader.exec_module(module)
    return module


def inputs(results):
    analysis = Analysis(answer="x", grade="A")
    return FigureInputs(RunRecord(run="r", study="scaling", options={}, started=0.0, pgherd="0", analysis=analysis), analysis, results)


def trial(clients):
    from pgherd.model.deployment import Deployment

    return Trial(point={"clients": clients}, deployment=Deployment(hosts=()), phases=())


def test_the_first_and_the_last_point_by_second(simulator):
    figure = io(inputs([simulator.result_of(trial(n), n) for n in (1, 2, 16)]))
    text = str(drawing.specification(figure, validate=True))
    assert "clients 1, trial" in text and "clients 16, trial" in text and "clients 2, trial" not in text
    assert "sda (data) writes" in figure.title and "sdb (WAL) writes" in figure.title


def test_queues_and_response_times_by_second_of_the_last_point(simulator):
    results = [simulator.result_of(trial(n), n) for n in (1, 16)]
    phase = results[1].phases[0]
    deep = phase.io.devices[0].series.model_copy(update={"queue": [3.0] * 59 + [63.0]})
    devices = [phase.io.devices[0].model_copy(update={"series": deep}), *phase.io.devices[1:]]
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": devices})})
    figure = io_waiting(inputs([results[0], results[1].model_copy(update={"phases": [observed]})]))
    text = str(drawing.specification(figure, validate=True))
    assert figure.title == ("clients 16: sda: data: queue 4, at most 63, 1 ms per write; sdb: WAL: queue 1, at most 1, 1 ms per write")
    assert "0017" in text and ", write" in text and ", read" not in text, "nothing was read"


def test_what_is_not_told_of_a_queue_is_not_drawn(simulator):
    """A hypervisor reports response times only."""
    result = simulator.result_of(trial(1), apart=False)
    (phase,) = result.phases
    (device,) = phase.io.devices
    silent = device.series.model_copy(update={"queue": [None] * 60, "busy": [None] * 60})
    for series, title in ((silent, "sda: data, WAL: 1 ms per write"), (silent.model_copy(update={"write_await": [None] * 60}), None)):
        devices = [device.model_copy(update={"series": series})]
        observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": devices})})
        reported = inputs([result.model_copy(update={"phases": [observed]})])
        if title is None:
            with pytest.raises(FigureUnavailable):
                io_waiting(reported)
        else:
            assert io_waiting(reported).title == title


def test_there_is_room_for_every_label_that_is_drawn(simulator):
    """Reads are drawn next to writes, with labels longer than the devices' names."""
    result = simulator.result_of(trial(1), apart=False)
    (phase,) = result.phases
    (device,) = phase.io.devices
    reading = {"read_bytes": device.series.write_bytes, "read_await": [1.0] * 60}
    devices = [device.model_copy(update={"name": "a-device-of-a-long-name", "series": device.series.model_copy(update=reading)})]
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": devices})})
    reported = inputs([result.model_copy(update={"phases": [observed]})])
    for figure, longest in (
        (io(reported), "a-device-of-a-long-name: data, WAL, read"),
        (io_waiting(reported), "a-device-of-a-long-name: data, WAL, write"),
    ):
        drawn = drawing.specification(figure, validate=True)
        assert longest in str(drawn)
        assert {panel["width"] for panel in drawn["vconcat"]} == {chart_style.plot_width([longest])}


def test_what_was_not_traced_has_no_figure_and_is_not_missed(simulator):
    plain = inputs([simulator.result_of(trial(1))])
    for builder in (io_sizes, io_latency, io_gaps):
        with pytest.raises(FigureUnavailable) as caught:
            builder(plain)
        assert str(caught.value) == ""


def test_latencies_of_traced_requests(simulator):
    figure = io_latency(inputs([simulator.result_of(trial(1), traced=True)]))
    drawing.specification(figure, validate=True)
    assert figure.title == "Requests completed in under 1 ms: sda: data, reads: 90.0 %"


def test_a_tainted_trial_is_left_out_of_traced_requests_and_marked_if_drawn(simulator):
    clean, slow = (simulator.result_of(trial(1), number, traced=True) for number in range(2))
    failed = Check(name="background-disk", kind="noise", result="fail", observed="", expected="", severity="taint")
    (phase,) = slow.phases
    late = phase.io.devices[0].trace["read"].model_copy(update={"latency": histogram([5e6] * 9000)})
    device = phase.io.devices[0].model_copy(update={"trace": phase.io.devices[0].trace | {"read": late}})
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [device, *phase.io.devices[1:]]})})
    slow = slow.model_copy(update={"phases": [observed], "checks": [failed]})
    assert io_latency(inputs([clean, slow])).title == io_latency(inputs([clean])).title != io_latency(inputs([slow])).title
    assert "(tainted)" in str(drawing.specification(io(inputs([slow]))))
    assert "(tainted)" not in str(drawing.specification(io(inputs([slow, clean]))))


def test_sizes_of_traced_requests(simulator):
    """Known: most writes are of 8 kB; the three reads are too few to be drawn, and are not what the figure is about."""
    result = simulator.result_of(trial(1), traced=True)
    (phase,) = result.phases
    plain = phase.io.devices[0].trace["all"]
    sizes = {"write": {8192: 600, 16384: 400}, "read": {1024: 3}}
    traced = {kind: plain.model_copy(update={"sizes": counts, "requests": sum(counts.values())}) for kind, counts in sizes.items()}
    device = phase.io.devices[0].model_copy(update={"trace": traced})
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [device]})})
    figure = io_sizes(inputs([result.model_copy(update={"phases": [observed]})]))
    assert figure.title == "sda: data, writes: 60 % of the requests have 8 kB"
    assert "reads" not in str(drawing.specification(figure, validate=True))


def test_gaps_between_traced_requests(simulator):
    """Known: 900 gaps of 0.2 ms and 100 of 50 ms."""
    result = simulator.result_of(trial(1), traced=True)
    (phase,) = result.phases
    gaps = histogram([200] * 900 + [50_000] * 100)
    traced = {kind: item.model_copy(update={"gaps": gaps}) for kind, item in phase.io.devices[0].trace.items()}
    device = phase.io.devices[0].model_copy(update={"trace": traced})
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [device]})})
    figure = io_gaps(inputs([result.model_copy(update={"phases": [observed]})]))
    drawing.specification(figure, validate=True)
    assert figure.title.startswith("Half of the requests follow the previous one within: sda: data: 0.2")
    assert float(figure.title.rpartition(": ")[2].removesuffix(" ms")) == pytest.approx(0.2, rel=1 / 32)


def test_a_run_without_a_view_has_no_figure():
    with pytest.raises(FigureUnavailable):
        io(inputs([]))


def test_of_a_guest_both_views_of_a_drive_are_drawn(simulator):
    """As its kernel counts, and below that as QEMU does."""
    result = simulator.result_of(trial(1))
    (phase,) = result.phases[:1]
    data = next(view for view in phase.io.devices if "data" in view.roles)
    inside = data.model_copy(update={"number": "guest-disk:db01/vdb", "name": "db01/vdb", "below": ["guest-drive:db01/data"]})
    queue = {"queue": [None] * len(data.series.at), "busy": [None] * len(data.series.at)}
    below = data.model_copy(
        update={"number": "guest-drive:db01/data", "name": "db01/data (QEMU)", "roles": {}, "series": data.series.model_copy(update=queue)}
    )
    observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [inside, below]})})
    figure = io(inputs([result.model_copy(update={"phases": [observed]})]))
    text = str(drawing.specification(figure, validate=True))
    assert "db01/vdb: data" in text and "db01/data (QEMU): below db01/vdb" in text and "()" not in figure.title


def test_waits_are_stacked_by_class_and_the_title_names_the_largest(simulator):
    results = [simulator.result_of(trial(n), n) for n in (1, 8)]
    with pytest.raises(FigureUnavailable):
        waits(inputs(results))
    series = {name: [0.0, 0.0] for name in WAIT_COLOURS} | {"lock": [3.0, 4.0], "cpu": [1.0, 0.0]}
    seen = [
        result.model_copy(update={"phases": [phase.model_copy(update={"waits": {"c/pg": series}}) for phase in result.phases]})
        for result in results
    ]
    figure = waits(inputs(seen))
    specification = drawing.specification(figure, validate=True)
    assert figure.title == "clients 8: 88 % of the active sessions wait for lock"
    text = str(specification)
    assert "'stack': 'zero'" in text and "lock" in text and "ipc" not in text, "a class without a session is not in the legend"
    assert tuple(WAIT_COLOURS) == WAIT_CLASSES


def test_waits_are_of_the_ends_of_the_plan_and_of_the_busiest_server(simulator):
    def series(lock, io=0.0):
        return {name: [0.0, 0.0] for name in WAIT_COLOURS} | {"lock": [lock, lock], "io": [io, io]}

    def waiting(clients, started, **waits_of):
        result = simulator.result_of(trial(clients), clients)
        phases = [phase.model_copy(update={"waits": waits_of}) for phase in result.phases]
        return result.model_copy(update={"phases": phases, "started": started})

    order = [
        waiting(8, 0.0, a=series(0.0, 0.5), b=series(3.0)),
        waiting(64, 1.0, a=series(0.0, 9.0), b=series(1.0)),
        waiting(1, 2.0, a=series(1.0)),
    ]
    figure = waits(inputs(order))
    assert figure.title == "clients 64, server a: 100 % of the active sessions wait for io"
    text = str(drawing.specification(figure))
    assert "clients 1, trial" in text and "clients 8, trial" not in text
