from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.study.option import declared
from pgherd.study.study import study_of
from pgherd.ui.study_forms import arguments, study_forms

DANGEROUS = {
    *("set", "settings_from", "script", "init_script", "pg_bin", "data_volume", "wal_volume", "temp_volume"),
    *(
        "tablespace_volume",
        "allow_format",
        "dsn",
        "servers",
        "server",
        "allow_writes",
        "run_as",
        "track",
        "trace_io",
        "variant",
        "compare_setting",
    ),
    *("write_scenario", "runs", "yes", "to", "dir", "filesystem", "cluster", "cluster_certs", "command", "volume"),
}


def test_studies_that_name_files_or_programs_are_not_started_from_the_page():
    assert not {"disk", "exec", "compare"} & set(study_forms())


@pytest.mark.parametrize("study", study_forms())
def test_every_field_is_an_option_of_the_command_line_and_none_is_dangerous(study):
    known = {item.name for item in declared(study_of(study).request_model)}
    names = [field.name.replace("-", "_") for field in study_forms()[study].fields]
    assert set(names) <= known and len(set(names)) == len(names)
    assert not set(names) & DANGEROUS


@pytest.mark.parametrize("study", study_forms())
def test_the_first_values_of_the_fields_are_taken(study):
    filled = {field.name: field.filled for field in study_forms()[study].fields}
    assert all(word.startswith("--") for word in arguments(study, filled))


@pytest.mark.parametrize("study", ["density", "scaling"])
def test_objectives_and_a_price_are_given_as_on_the_command_line(study):
    given = arguments(study, {"slo": "p95=5ms,p99=10ms", "price": "0.38/h"})
    assert {"--slo=p95=5ms,p99=10ms", "--price=0.38/h"} <= set(given)


def test_words_of_the_command_line():
    inputs = {
        "databases": " 1, 2,4",
        "workload": "tpcb-like",
        "duration": "5s",
        "vcpus": "0.5",
        "memory": "512MB",
        "scale": "",
        "efficiency": "0.85",
    }
    assert arguments("density", inputs) == [
        *("--databases=1,2,4", "--workload=tpcb-like", "--duration=5s", "--efficiency=0.85", "--vcpus=0.5", "--memory=512MB"),
    ]
    assert arguments("network", {"netns": "yes"}) == ["--netns"]


@pytest.mark.parametrize(
    "study, inputs",
    [
        ("gate", {}),
        ("../density", {}),
        ("density", {"set": "archive_command=x"}),
        ("density", {"pg-bin": "/tmp"}),
        ("density", {"scale": "--yes"}),
        ("density", {"scale": "1e9"}),
        ("density", {"databases": "1;2"}),
        ("density", {"databases": ",".join(["1"] * 65)}),
        ("density", {"workload": "custom"}),
        ("density", {"duration": "soon"}),
        ("density", {"memory": "much"}),
        ("density", {"vcpus": "nan"}),
        ("density", {"price": "/etc/h"}),
        ("density", {"vcpus": "1" * 200}),
        ("density", {"scale": "1\n--yes"}),
        ("hugepages", {"page-sizes": "-x"}),
        ("hugepages", {"page-sizes": "$(id)"}),
    ],
)
def test_what_cannot_be_given(study, inputs):
    with pytest.raises(UsageError):
        arguments(study, inputs)


@given(st.sampled_from(sorted(study_forms())), st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=3))
def test_nothing_becomes_an_option_of_its_own(study, given):
    names = [field.name for field in study_forms()[study].fields]
    try:
        message = arguments(study, {names[i % len(names)]: value for i, value in enumerate(given.values())})
    except UsageError:
        return
    assert all(word.removeprefix("--").partition("=")[0] in names for word in message)
