"""What counts as the same, however it is written."""

from functools import cache

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.prepare.requests import require_different
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.scaling.options import ScalingOptions, ScalingVariant
from pgherd.study.database_options import DatabaseOptions

NODE = LocalNode()


@cache
def programs():
    return installations.choose(NODE).bin


def options(settings, **changes):
    common = {"host_cores": 2, "host_memory": 2**30, "vcpus": 1, "pg_bin": programs(), "pg_version": "any"}
    return DatabaseOptions(**common, settings=settings).model_copy(update=changes)


def refused(item, other):
    """What is said of two servers with these settings; '' where they differ."""
    requests = {name: DensityRequest(set=tuple(f"{key}={value}" for key, value in of.items())) for name, of in (("a", item), ("b", other))}
    try:
        require_different(NODE, "variant", requests, {"a": options(item), "b": options(other)})
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("setting", "item", "other"),
    [
        ("shared_buffers", "1GB", "1024MB"),
        ("shared_buffers", "131072", "1GB"),
        ("jit", "on", "TRUE"),
        ("jit", "0", "no"),
        ("checkpoint_timeout", "1min", "60s"),
        ("random_page_cost", "1.10", "1.1"),
        ("wal_compression", "on", "pglz"),
        ("log_statement", "ALL", "all"),
        ("some_extension.memory", "1GB", "1024MB"),
        ("some_extension.every", "1min", "60s"),
        ("some_extension.flag", "on", "true"),
    ],
)
def test_one_value_in_two_spellings_is_refused_with_both(setting, item, other):
    text = refused({setting: item}, {setting: other})
    assert text == (
        f"variants 'a' and 'b' are identical: {setting} is {item} in 'a' and {other} in 'b', which is the same value; results would differ "
        "only by noise; change one of them, or leave it out"
    )


@pytest.mark.parametrize(
    ("setting", "item", "other"),
    [
        ("shared_buffers", "1GB", "1025MB"),
        ("shared_buffers", "1024", "1024kB"),  # blocks
        ("work_mem", "1024", "1024MB"),
        ("jit", "on", "off"),
        ("search_path", "On", "on"),
        ("some_extension.memory", "1024", "1kB"),  # nobody knows what it counts in
        ("some_extension.every", "1h", "1d"),
        ("some_extension.flag", "on", "off"),
        ("some_extension.word", "One", "one"),
    ],
)
def test_what_differs_is_let_through(setting, item, other):
    assert not refused({setting: item}, {setting: other})


def test_a_setting_at_its_default_is_no_difference():
    """Asked of PostgreSQL: pgherd knows the defaults of few settings itself."""
    text = refused({}, {"work_mem": "4096kB", "jit": "off"})
    assert not text, "one of two settings does differ"
    assert "work_mem is not given in 'a' and 4096kB in 'b', which is the same value" in refused({}, {"work_mem": "4096kB"})


def test_old_names_of_settings_mean_the_new_ones():
    assert "'a' and 'b' are identical" in refused({"sort_mem": "5MB"}, {"work_mem": "5120kB"})


def test_options_are_compared_as_completed_and_said_as_asked_for():
    requests = {"a": DensityRequest(memory="1GB", dsn="host=h password=s3cret"), "b": DensityRequest(memory="1024MB", dsn="host=h")}
    text = "memory is 1GB in 'a' and 1024MB in 'b'.*, which is the same value; results would differ only by noise, as ever; "
    with pytest.raises(UsageError, match=text) as error:
        require_different(NODE, "scenario", requests, {name: options({}) for name in "ab"}, ", as ever")
    assert "s3cret" not in str(error.value)
    require_different(NODE, "scenario", requests, {"a": options({}), "b": options({}, scale=3)})


def test_settings_count_in_every_server_that_is_described():
    """A scaling study says its variants' settings in each of them."""

    def scaling(buffers):
        servers = [options({"shared_buffers": size}) for size in ("64MB", buffers)]
        variants = tuple(ScalingVariant(name=name, options=server) for name, server in zip("pq", servers, strict=True))
        return ScalingOptions(**servers[0].model_dump(), clients=(1,), max_clients=1, variants=variants)

    requests = {name: DensityRequest() for name in "ab"}
    require_different(NODE, "scenario", requests, {"a": scaling("1GB"), "b": scaling("2GB")})
    with pytest.raises(UsageError, match="scenarios 'a' and 'b' are identical: results would differ"):
        require_different(NODE, "scenario", requests, {"a": scaling("1GB"), "b": scaling("1024MB")})


def test_how_a_study_is_run_is_no_difference_in_its_arms_either():
    def scaling(seed, scale):
        study_options = options({})
        inner = tuple(ScalingVariant(name=name, options=study_options.model_copy(update={"seed": seed, "scale": scale})) for name in "pq")
        return ScalingOptions(**study_options.model_dump(), clients=(1,), max_clients=1, variants=inner)

    requests = {name: DensityRequest() for name in "ab"}
    with pytest.raises(UsageError, match="'a' and 'b' are identical"):
        require_different(NODE, "scenario", requests, {"a": scaling(1, 2), "b": scaling(2, 2)})
    require_different(NODE, "scenario", requests, {"a": scaling(1, 2), "b": scaling(1, 3)})
