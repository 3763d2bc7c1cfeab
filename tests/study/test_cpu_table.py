"""Where the CPU went, as cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.repeats import NO_CONTAINER_CPU, cpu_cells, named_parts
from pgherd.study.repeats import Repeats, repeats

Build = Callable[..., DensityOptions]


def point(given: DensityOptions, host: Any) -> Repeats:
    found = repeats(given, host.all(planned(given)))
    assert found is not None
    return found


def test_parts_in_cores_with_named_ones_after_the_platform(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    found = point(given, simulate(given, overhead=0.4))
    assert named_parts([found]) == ["vm"]
    cells = cpu_cells(found, ["vm", "nfs"])
    assert list(cells) == ["databases_cpu", "clients", "pgherd", "platform", "platform.vm", "platform.nfs", "iowait", "idle", "steal"]
    assert cells["platform"].value == pytest.approx(0.4)
    assert cells["platform.vm"].value == pytest.approx(0.2)
    assert cells["platform.nfs"].note == "this part was not seen"
    assert cells["databases_cpu"].value + cells["clients"].value == pytest.approx(1, abs=0.01)


def test_what_was_not_seen_says_so(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    cells = cpu_cells(point(given, simulate(given, metrics=False)), [])
    assert all(cell.value is None for cell in cells.values())
    assert cells["databases_cpu"].note == cells["platform"].note == NO_CONTAINER_CPU
    assert cells["idle"].note == "the host did not show it"
    assert cells["pgherd"].note == "the processes did not show it"
