from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.ui.study_forms import OFFERS, arguments

DANGEROUS = {
    *("set", "like", "script", "init", "pg_bin", "data_on", "wal_on", "temp_on", "wal_dir", "tablespaces_on", "allow_format", "server"),
    *(
        "allow_write",
        "run_as",
        "platform",
        "trace",
        "variant",
        "compare",
        "write_scenario",
        "runs",
        "yes",
        "to",
        "directory",
        "dsn",
        "cluster",
    ),
}


@pytest.mark.parametrize("study", OFFERS)
def test_every_field_is_an_option_of_the_command_line_and_none_is_dangerous(study):
    command = importlib.import_module(f"pgherd.cli.{study.replace('-', '_')}").command
    known = {name.lstrip("-") for parameter in command.params for name in parameter.opts}
    names = [field.name for field in OFFERS[study].fields]
    assert set(names) <= known and len(set(names)) == len(names)
    assert not {name.replace("-", "_") for name in names} & DANGEROUS


@pytest.mark.parametrize("study", OFFERS)
def test_what_stands_in_the_fields_is_taken(study):
    filled = {field.name: field.filled for field in OFFERS[study].fields}
    assert all(word.startswith("--") for word in arguments(study, filled))


def test_words_of_the_command_line():
    given = {"points": " 1, 2,4", "workload": "tpcb-like", "seconds": "5s", "vcpus": "0.5", "memory": "512MB", "scale": "", "at": "85%"}
    assert arguments("density", given) == [
        *("--points=1,2,4", "--workload=tpcb-like", "--duration=5s", "--at=85%", "--vcpus=0.5", "--memory=512MB"),
    ]
    assert arguments("network", {"namespaces": "yes"}) == ["--namespaces"]


@pytest.mark.parametrize(
    "study, given",
    [
        ("gate", {}),
        ("../density", {}),
        ("density", {"set": "archive_command=x"}),
        ("density", {"pg-bin": "/tmp"}),
        ("density", {"scale": "--yes"}),
        ("density", {"scale": "1e9"}),
        ("density", {"points": "1;2"}),
        ("density", {"points": ",".join(["1"] * 65)}),
        ("density", {"workload": "custom"}),
        ("density", {"seconds": "soon"}),
        ("density", {"memory": "much"}),
        ("density", {"vcpus": "nan"}),
        ("density", {"vcpus": "1" * 200}),
        ("density", {"scale": "1\n--yes"}),
        ("hugepages", {"pages": "-x"}),
        ("hugepages", {"pages": "$(id)"}),
    ],
)
def test_what_cannot_be_given(study, given):
    with pytest.raises(UsageError):
        arguments(study, given)


@given(st.sampled_from(sorted(OFFERS)), st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=3))
def test_nothing_becomes_an_option_of_its_own(study, given):
    names = [field.name for field in OFFERS[study].fields]
    try:
        words = arguments(study, {names[i % len(names)]: value for i, value in enumerate(given.values())})
    except UsageError:
        return
    assert all(word.removeprefix("--").partition("=")[0] in names for word in words)
