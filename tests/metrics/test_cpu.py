import pytest

from pgherd.metrics.cpu import SAMPLER, TICKS
from pgherd.metrics.sampler import View

(SOURCE,) = SAMPLER.sources(View())


def test_reads_the_host(parsed, text) -> None:
    values = parsed("cpu", "proc-stat")["host"]
    first = [int(x) for x in text("proc-stat").splitlines()[0].split()[1:]]
    assert values["cpu.user"] == pytest.approx(first[0] / TICKS)
    assert values["cpu.steal"] == pytest.approx(first[7] / TICKS)
    assert values["ctxt"] > values["forks"] > 1000
    assert values["procs_running"] >= 1
    assert set(values) == {metric.name for metric in SAMPLER.metrics}


def test_guests_are_counted_once() -> None:
    (reading,) = SAMPLER.parse("cpu  1000 200 300 4000 50 6 7 80 400 150\ncpu0 1 1 1 1\n", SOURCE)
    values = reading[1]
    assert values["cpu.user"] == pytest.approx(1150 / TICKS)
    assert values["cpu.nice"] == pytest.approx(50 / TICKS)
    assert values.pop("cpu.online") == 1
    assert sum(values.values()) == pytest.approx((1000 + 200 + 300 + 4000 + 50 + 6 + 7 + 80) / TICKS)


def test_an_old_kernels_shorter_line_will_do() -> None:
    (reading,) = SAMPLER.parse("cpu 1 2 3 4\n", SOURCE)
    assert reading[1]["cpu.idle"] == 4 / TICKS
    assert reading[1]["cpu.steal"] == 0
