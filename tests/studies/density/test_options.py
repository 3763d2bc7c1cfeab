"""Points, deployment and the checks of the options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pgherd.studies.density.options import DensityOptions, DensityRequest, choose_points, deployment, next_point


def test_e1_itself() -> None:
    assert choose_points(160, 4) == (1, 2, 24, 36, 40, 48, 54, 60)


def test_two_cores() -> None:
    assert choose_points(2, 0.25) == (1, 2, 5, 8, 9, 10, 11, 12)


def test_a_database_larger_than_the_host() -> None:
    assert choose_points(2, 4) == (1, 2)


@given(st.floats(0.5, 512), st.floats(0.05, 64), st.floats(0.3, 1))
def test_points_begin_at_one_fill_the_cores_and_go_past_them(cores: float, vcpus: float, efficiency: float) -> None:
    points = choose_points(cores, vcpus, efficiency)
    assert points[0] == 1
    assert list(points) == sorted(set(points))
    assert len(points) <= 8
    assert points[-1] * vcpus * efficiency > cores * (1 - 1e-9), "an ideal host reaches the target before the last point"
    within = [n for n in points if n * vcpus <= cores * (1 + 1e-9)]
    if within:
        assert (within[-1] + 1) * vcpus > cores * (1 - 1e-6)  # no further database would fit into the cores


@given(st.floats(0.5, 512), st.floats(0.05, 64), st.integers(1, 100))
def test_a_limit_is_kept_and_used(cores: float, vcpus: float, limit: int) -> None:
    points, free = choose_points(cores, vcpus, limit=limit), choose_points(cores, vcpus)
    assert max(points) == min(max(free), limit)
    assert points[0] == 1


def build(**more: object) -> DensityOptions:
    given = {"host_cores": 2, "host_memory": 2**32, "vcpus": 0.25, "pg_bin": "/pg/bin", "pg_version": "18.6", "databases": (1, 10, 2)}
    return DensityOptions(**{**given, **more})


def test_points_are_sorted_and_distinct() -> None:
    assert build(databases=(4, 1, 4, 2)).databases == (1, 2, 4)


@pytest.mark.parametrize("points", [(), (0, 1), (-3,)])
def test_points_below_one_are_refused(points: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        build(databases=points)


def test_deployment_has_all_containers_of_the_largest_point() -> None:
    found = deployment(build(container_memory=2**28, cpu_mode="quota", runtime="cgroup", settings={"shared_buffers": "64MB"}, scale=7))
    containers = [container for _, container in found.containers()]
    assert [container.name for container in containers] == [f"db{i:02d}" for i in range(1, 11)]
    assert {container.vcpus for container in containers} == {0.25}
    assert {container.memory for container in containers} == {2**28}
    addresses = [str(place) for place, *_ in found.databases()]
    assert addresses[0] == "local/db01/pg/bench"
    assert containers[0].servers[0].settings == {"shared_buffers": "64MB"}
    assert containers[0].servers[0].databases[0].scale == 7


def test_names_have_one_width() -> None:
    assert next(c.name for _, c in deployment(build(databases=(1, 120))).containers()) == "db001"


def test_a_soak_deploys_what_it_loads() -> None:
    options = build(databases=(1, 4, 8, 10), soak_seconds=600)
    assert options.soak_point == 8
    assert len(list(deployment(options).containers())) == 8
    assert build(databases=(10,), soak_seconds=600).soak_point == 10


@pytest.mark.parametrize(("points", "further"), [((1, 2), 11), ((1, 8, 10), 13), ((1, 20), 25)])
def test_the_next_number_lies_past_a_full_host(points: tuple[int, ...], further: int) -> None:
    """Eight fill the host; 9.4 of them have 85 % each."""
    options = DensityOptions(host_cores=2, host_memory=2**32, vcpus=0.25, pg_bin="/b", pg_version="18.6", databases=points)
    assert next_point(options) == further


@pytest.mark.parametrize(("name", "default"), [("duration", "9s"), ("warmup", "1s")])
def test_null_means_the_default(name: str, default: str) -> None:
    assert str(getattr(DensityRequest.model_validate({name: None}), name)) == default
    with pytest.raises(ValidationError):
        DensityRequest.model_validate({name: []})
