"""Options of a scaling run, and the choice of client counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pgherd.model.load import Script
from pgherd.studies.scaling.options import ScalingOptions, ScalingRequest, choose_clients, plural, scripts_of

Build = Callable[..., ScalingOptions]


@pytest.mark.parametrize(
    ("cores", "clients"),
    [
        (0.5, (1, 2)),
        (2, (1, 2, 3, 4, 6, 8)),
        (8, (1, 2, 4, 6, 8, 12, 16, 24, 32)),
        (32, (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)),  # E3's host: from 1 beyond 48
    ],
)
def test_clients_follow_the_cores(cores: float, clients: tuple[int, ...]) -> None:
    assert choose_clients(cores) == clients


@given(st.floats(0.1, 512), st.none() | st.integers(1, 300))
def test_chosen_clients_begin_at_one_ascend_and_keep_to_the_limit(cores: float, limit: int | None) -> None:
    found = choose_clients(cores, limit)
    assert found[0] == 1
    assert list(found) == sorted(set(found))
    assert limit is None or found[-1] <= max(limit, 1)
    assert len(found) <= 18
    assert limit is not None or found[-1] >= 4 * cores - 1


def test_clients_are_sorted_and_must_exist(options: Build) -> None:
    assert options(clients=(8, 1, 8, 2)).clients == (1, 2, 8)
    with pytest.raises(ValidationError, match="0 clients cannot be measured"):
        options(clients=(0, 1))
    with pytest.raises(ValidationError, match="configured for 4 clients, but 16 are planned"):
        options(max_clients=4)


def test_variants_have_names_of_their_own(variants: Build, options: Build) -> None:
    found = variants({"old": {"pg_version": "15.18"}, "new": {}})
    assert {name: one.pg_version for name, one in found.servers().items()} == {"old": "15.18", "new": "18.6"}
    assert options().servers() == {"": options()}
    with pytest.raises(ValidationError, match="two or more variants with different names, not one"):
        variants({"one": {}})
    assert ScalingOptions.model_validate_json(found.model_dump_json()) == found


def test_loads_and_clients_in_words(options: Build) -> None:
    assert scripts_of(options()) == "select-only"
    assert scripts_of(options(scripts=(Script(source="/a/b/mine.sql"), Script(source="builtin:tpcb-like")))) == "mine.sql, tpcb-like"
    assert (plural(1), plural(8)) == ("1 client", "8 clients")


@pytest.mark.parametrize(("name", "default"), [("duration", "9s"), ("warmup", "1s")])
def test_null_means_the_default(name: str, default: str) -> None:
    assert str(getattr(ScalingRequest.model_validate({name: None}), name)) == default
    with pytest.raises(ValidationError):
        ScalingRequest.model_validate({name: []})
