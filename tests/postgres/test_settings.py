from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.postgres.settings import (
    PRIVATE,
    ChosenSettings,
    buffers_for,
    choose_settings,
    differing,
    max_wal_bytes,
    memory_needed,
    reload_or_restart,
)

MB = 2**20
FIXTURES = Path(__file__).parents[1] / "fixtures/postgres"


def choose(**options) -> ChosenSettings:
    return choose_settings(**{"major": 18, "database_bytes": 164_600_000, "clients": 8, **options})


def test_a_database_of_scale_10_is_held_whole() -> None:
    choice = choose(memory=8 * 1024 * MB)
    assert choice.cached
    assert choice.settings["shared_buffers"] == "184MB"  # 157 MB, 5 %, 16 MB, in steps of 8 MB
    assert choice.settings["max_connections"] == "20"
    assert choice.settings["io_method"] == "sync"
    assert not choice.warnings


def test_every_row_differs_and_says_why() -> None:
    choice = choose(writes=True, asked={"work_mem": "64MB"}, like={"jit": "off"})
    assert {row.name: row.value for row in choice.rows} == choice.settings
    assert all(row.why and row.value != row.default for row in choice.rows)


@pytest.mark.parametrize(
    "name", ["fsync", "autovacuum", "jit", "full_page_writes", "wal_level", "synchronous_commit", "checkpoint_timeout"]
)
def test_what_shapes_the_cost_of_a_transaction_is_left_alone(name: str) -> None:
    assert name not in choose(writes=True).settings


def test_writes_get_room_to_grow_and_checkpoints_by_time() -> None:
    reads, writes = choose(), choose(writes=True)
    assert _mb(writes) > _mb(reads)
    assert "max_wal_size" in writes.settings
    assert "max_wal_size" not in reads.settings


@pytest.mark.parametrize(
    ("asked", "size"), [({}, 2**30), ({"max_wal_size": "4GB"}, 2**32), ({"max_wal_size": "512"}, 2**29), ({"max_wal_size": "0x400"}, 2**30)]
)
def test_the_size_of_wal_is_read_from_the_settings(asked: dict[str, str], size: int) -> None:
    assert max_wal_bytes(asked) == size


def test_reserved_pages_are_used_only_if_asked_for() -> None:
    assert choose().settings["huge_pages"] == choose(cached=False).settings["huge_pages"] == "off"
    assert "huge_pages" not in choose(asked={"huge_pages": "try"}).settings
    assert choose(like={"huge_pages": "on"}).settings["huge_pages"] == "on"


def test_io_method_exists_since_18_and_stays_where_reads_are_measured() -> None:
    assert "io_method" not in choose(major=17).settings
    assert "io_method" not in choose(cached=False, memory=64 * MB).settings


def test_a_database_that_does_not_fit_gets_a_quarter_of_memory_and_a_warning() -> None:
    choice = choose(memory=256 * MB, clients=64)
    assert not choice.cached
    assert choice.settings["shared_buffers"] == "64MB"
    assert "256 MB" in choice.warnings[0]


def test_meant_not_to_be_cached_is_no_warning() -> None:
    choice = choose(database_bytes=20_000 * MB, memory=1024 * MB, cached=False)
    assert (choice.settings["shared_buffers"], choice.cached, choice.warnings) == ("256MB", False, ())
    assert "shared_buffers" not in choose(cached=False).settings  # without a limit: the default


def test_the_users_settings_win_and_set_beats_like() -> None:
    choice = choose(like={"work_mem": "1MB", "jit": "off"}, asked={"work_mem": "64MB", "shared_buffers": "1GB"})
    assert choice.settings["work_mem"] == "64MB"
    assert choice.settings["jit"] == "off"
    assert choice.settings["shared_buffers"] == "1GB"
    assert choice.cached
    assert {row.name: row.why for row in choice.rows}["work_mem"] == "from --set"


@pytest.mark.parametrize("small", ["16MB", "2048", "128kB"])
def test_shared_buffers_of_the_users_that_are_too_small_are_said(small: str) -> None:
    choice = choose(asked={"shared_buffers": small})
    assert not choice.cached
    assert small in choice.warnings[0]


def test_a_default_that_is_asked_for_undoes_our_choice() -> None:
    assert "max_wal_senders" not in choose(asked={"max_wal_senders": "10"}).settings


def test_too_few_connections_are_an_error_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"max_connections 10 .* 8 clients .* at least 13"):
        choose(asked={"max_connections": "10"})
    assert choose(clients=100).settings["max_connections"] == "105"


def test_shared_buffers_of_the_users_that_are_more_than_the_container_has_are_said() -> None:
    warnings = choose(like={"shared_buffers": "64GB"}, memory=1024 * MB).warnings
    assert any("shared_buffers 64GB (from --settings-from) are more than the container's 1 GB" in warning for warning in warnings)
    assert not choose(like={"shared_buffers": "512MB"}, memory=1024 * MB).warnings
    assert not choose(like={"shared_buffers": "64GB"}).warnings, "without a limit there is no warning"


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_pgherds_own_matters_cannot_be_set(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        choose(asked={name: "x"})


def test_unsafe_settings_are_said() -> None:
    assert any("fsync is off" in warning for warning in choose(asked={"fsync": "off"}).warnings)


def _mb(choice: ChosenSettings) -> int:
    return int(choice.settings.get("shared_buffers", "128MB").removesuffix("MB"))  # the default is left out


@given(st.integers(8 * MB, 10**13), st.integers(1, 500), st.integers(64 * MB, 10**12), st.booleans())
def test_cached_always_means_that_it_fits(size: int, clients: int, memory: int, writes: bool) -> None:
    choice = choose(database_bytes=size, clients=clients, memory=memory, writes=writes)
    buffers = _mb(choice) * MB
    if choice.cached:
        assert buffers >= size
        assert memory_needed(buffers, clients) <= memory
    else:
        assert buffers <= memory
        assert choice.warnings or memory_needed(buffers_for(size, writes), clients) > memory


CONTEXTS = {"shared_buffers": "postmaster", "work_mem": "user", "max_wal_size": "sighup", "log_connections": "superuser-backend"}


@pytest.mark.parametrize(
    ("old", "new", "step"),
    [
        ({}, {}, "keep"),
        ({"work_mem": "1MB"}, {"work_mem": "1MB"}, "keep"),
        ({"work_mem": "1MB"}, {"work_mem": "2MB"}, "reload"),
        ({"work_mem": "1MB"}, {}, "reload"),
        ({}, {"max_wal_size": "4GB", "log_connections": "on"}, "reload"),
        ({"shared_buffers": "1GB"}, {"shared_buffers": "2GB"}, "restart"),
        ({"shared_buffers": "1GB"}, {}, "restart"),
        ({"work_mem": "1MB"}, {"work_mem": "2MB", "shared_buffers": "2GB"}, "restart"),
        ({}, {"nobody.knows": "1"}, "restart"),
    ],
)
def test_reload_or_restart(old: dict[str, str], new: dict[str, str], step: str) -> None:
    assert reload_or_restart(old, new, CONTEXTS) == step


@pytest.mark.parametrize("major", [15, 18])
def test_differing_in_what_a_server_said(major: int) -> None:
    """Server with settings on its command line. Only fsync is not a private setting."""
    rows = json.loads((FIXTURES / f"pg_settings-{major}.json").read_text())
    assert differing(tuple(row) for row in rows) == {"fsync": "off"}
