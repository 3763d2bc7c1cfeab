import os
import threading
import time
from pathlib import Path

import pytest
import yaml

from pgherd.model.errors import UsageError
from pgherd.prepare.scenarios import json_schema, read_scenario, request, write_scenario
from pgherd.study.option import declared
from pgherd.study.registry import studies, study_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_scenario_of_ours_is_valid_and_named_after_its_experiment_or_its_study(path):
    scenario = read_scenario(path)
    assert scenario.title and scenario.note
    assert path.name.startswith(f"e{int(scenario.experiment[1:]):02d}-" if scenario.experiment else f"{scenario.study}-")


def test_comparisons_of_ours_have_blocks_enough_to_decide():
    """Pairs all of one sign must be rarer than a variant's part of 5 %."""
    minimum = {}
    for path in SCENARIOS.glob("*.yaml"):
        options = read_scenario(path).options
        variants = options.get("variant") or options.get("page_sizes") or str(options.get("compare_setting", "")).split(",")
        if len(variants) > 1 and isinstance(options.get("max_blocks"), int):
            minimum[path.name] = 2 * 0.5 ** options["max_blocks"] * (len(variants) - 1)
    assert len(minimum) >= 2 and max(minimum.values()) <= 0.05, minimum


def test_what_is_written_is_read_back(tmp_path):
    options = {"vcpus": 0.5, "databases": (1, 2, 4), "set": ("work_mem=8MB",), "duration": "3s"}
    write_scenario(tmp_path / "s.yaml", "density", options)
    assert request("density", read_scenario(tmp_path / "s.yaml").options) == request("density", options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study: density\noptions: {vcpu: 4}", "'vcpu' is not an option; check its spelling"),
        ("study: density\noptions: {vcpus: -1}", "'vcpus': input should be greater than 0, but it is -1"),
        ("study: dnsity", "there is no study 'dnsity'; there are compare, "),
        ("options: {}", "'study' is missing"),
        ("study: [", "line 1: this is not YAML"),
        ("- 1", "a scenario is a mapping with 'study' and 'options', but this is a list"),
        ("", "a scenario is a mapping with 'study' and 'options', but this is a NoneType"),
        ("study: density\nschema: other/1", "'schema': input should be 'pgherd/scenario/1', but it is 'other/1'"),
        ("study: &a density\ntitle: *a", "line 2: this is not YAML: aliases (*name) are not allowed"),
        ("[" * 100_000, "this is no scenario: it is nested too deeply"),
        ("a: 2020-13-01", "this is not YAML: month must be in 1..12"),
        ("a: " + "9" * 100_000, "this is not YAML: Exceeds the limit"),
        ("study: density\noptions: {duration: [" + "[[x], x, x, x, x, x, x, x], " * 1000 + "]}", "[[...], 'x', 'x', 'x', 'x', 'x', ...]"),
        ("study: density\noptions: {duration: 3}", "'duration': input should be a valid string, but it is 3"),
    ],
)
def test_what_is_wrong_is_one_message_with_the_file(tmp_path, text, message):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_scenario(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_no_password_is_written_or_told(tmp_path):
    options = {"dsn": "postgresql://me:s3cret@h/app", "variant": ('b:dsn="host=h password=s3cret"',), "clients": 2}
    write_scenario(tmp_path / "s.yaml", "compare", options)
    text = (tmp_path / "s.yaml").read_text()
    assert "s3cret" not in text and "postgresql://me:***@h/app" in text and "password=***" in text
    with pytest.raises(UsageError) as caught:
        request("density", {"dsn": ["postgresql://me:s3cret@h/app"]})
    assert "'dsn'" in str(caught.value) and "s3cret" not in str(caught.value)


def test_binary_and_missing_files_are_usage_errors(tmp_path):
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("b.yaml", "missing.yaml"):
        with pytest.raises(UsageError):
            read_scenario(tmp_path / name)


def test_the_schema_knows_every_option():
    schema = json_schema()
    assert "vcpus" in schema["$defs"]["density"]["properties"]
    assert yaml.safe_dump(schema)


@pytest.mark.parametrize("name", sorted(studies()))
def test_the_schema_of_a_study_has_its_options_and_none_that_it_rejects(name):
    model = study_of(name).request_model
    properties = set(json_schema()["$defs"][name]["properties"])
    assert properties == set(model.model_fields) - set(model.LEFT_OUT)
    assert {item.name for item in declared(model)} <= properties


def test_aliases_that_expand_without_end_are_refused_at_once(tmp_path):
    """346 bytes took 50 s and 1.4 GB."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path = tmp_path / "s.yaml"
    path.write_text("\n".join([*lines, "study: *a8"]))
    began = time.monotonic()
    with pytest.raises(UsageError, match="aliases") as caught:
        read_scenario(path)
    assert time.monotonic() - began < 2 and len(str(caught.value)) < 500


def test_a_large_value_is_cut_in_the_message(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("study: density\noptions: {" + "x" * 100_000 + ": 1}")
    with pytest.raises(UsageError) as caught:
        read_scenario(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", ["fifo", "device", "sparse"])
def test_a_scenario_that_is_no_small_file(tmp_path, kind):
    path = tmp_path / "s.yaml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 2**40)
    with pytest.raises(
        UsageError, match={"fifo": "a scenario is a mapping", "device": "no regular file", "sparse": "more than 262,144"}[kind]
    ):
        read_scenario(path)


def test_a_scenario_may_come_from_a_pipe(tmp_path):
    """As with 'pgherd run <(generate)' in bash."""
    reading, writing = os.pipe()

    def write():
        time.sleep(0.2)
        os.write(writing, b"study: density")
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_scenario(Path(f"/proc/self/fd/{reading}")).study == "density"
    writer.join()
    os.close(reading)
