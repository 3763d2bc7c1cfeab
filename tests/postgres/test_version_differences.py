import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.postgres import version_differences
from pgherd.postgres.version_differences import ABSENT, ServerDefaults, VersionDifference, differing, with_unit

OLD = ServerDefaults(
    "15.18",
    {"jit": "on", "work_mem": "4 MB", "effective_io_concurrency": "1", "old_one": "x", "port": "5432", "zero_damaged_pages": "off"},
    {"data checksums": "off", "encoding": "UTF8"},
)
NEW = ServerDefaults(
    "18.6",
    {
        "jit": "off",
        "work_mem": "4 MB",
        "effective_io_concurrency": "16",
        "io_method": "worker",
        "new_one": "y",
        "port": "1",
        "zero_damaged_pages": "on",
    },
    {"data checksums": "on", "encoding": "UTF8"},
)


def test_what_differs_is_listed_with_its_meaning_facts_first_and_the_unknown_last():
    assert differing(OLD, NEW) == (
        VersionDifference("data checksums", "off", "on", version_differences.MEANING["data checksums"]),
        VersionDifference("effective_io_concurrency", "1", "16", version_differences.MEANING["effective_io_concurrency"]),
        VersionDifference("io_method", ABSENT, "worker", version_differences.MEANING["io_method"]),
        VersionDifference("jit", "on", "off", version_differences.MEANING["jit"]),
        VersionDifference("zero_damaged_pages", "off", "on", ""),
    )


def test_what_is_set_does_not_count():
    names = [row.name for row in differing(OLD, NEW, ["jit", "io_method"])]
    assert names == ["data checksums", "effective_io_concurrency", "zero_damaged_pages"]


_SERVERS = st.builds(
    ServerDefaults,
    st.just("18"),
    st.dictionaries(st.sampled_from(["jit", "io_method", "work_mem", "a", "b"]), st.sampled_from(["1", "2"])),
    st.dictionaries(st.sampled_from(["encoding", "locale"]), st.sampled_from(["1", "2"])),
)


@given(_SERVERS, _SERVERS)
def test_it_is_the_same_from_both_sides(one, other):
    assert not differing(one, one)
    assert sorted((r.name, r.other, r.one) for r in differing(one, other)) == sorted(
        (r.name, r.one, r.other) for r in differing(other, one)
    )


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        ("16384", "8kB", "128 MB"), ("4096", "kB", "4 MB"), ("1024", "MB", "1 GB"), ("300", "s", "300 s"), ("-1", "kB", "-1"),
        ("0", "ms", "0"), ("on", None, "on"), ("0.9", None, "0.9"), ("0.2", "ms", "0.2"), ("16", "8kB", "128 kB"),
    ],
)  # fmt: skip
def test_values_are_shown_as_people_write_them(value, unit, shown):
    assert with_unit(value, unit) == shown


def test_facts_of_a_cluster_are_read():
    def ask(statement):
        if "pg_settings" in statement:
            return [("shared_buffers", "16384", "8kB"), ("jit", "on", None)]
        return [("on", "8192", "16MB", "UTF8", "b", "C.UTF-8", "PostgreSQL 18.6 on x86_64-linux, compiled by gcc 14, 64-bit")]

    result = version_differences.read(ask, "18.6")
    assert result.boot == {"shared_buffers": "128 MB", "jit": "on"}
    assert result.cluster["locale"] == "C.UTF-8 (builtin)" and result.cluster["built"] == "x86_64-linux, compiled by gcc 14, 64-bit"
