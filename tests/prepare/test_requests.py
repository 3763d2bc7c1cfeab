import os
import threading
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.prepare.requests import apply, expand, json_schema, parse_variant, read_scenario, request, write_scenario
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.isolation.options import AGGRESSORS
from pgherd.study.option import declared
from pgherd.study.study import studies, study_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_scenario_of_ours_is_valid_and_named_after_its_experiment_or_its_study(path):
    scenario = read_scenario(path)
    assert scenario.title and scenario.note
    assert f"{path.stem}-".startswith(f"e{int(scenario.experiment[1:]):02d}-" if scenario.experiment else f"{scenario.study}-")


def test_scenarios_of_isolation_have_all_aggressors_and_each_file_of_tenants_has_a_scenario():
    scenarios = {path.stem: read_scenario(path).options for path in SCENARIOS.glob("*.yaml")}
    assert all(set(scenarios[name]["aggressors"]) == set(AGGRESSORS) for name in ("isolation", "isolation-laptop"))
    used = {options["tenants"] for options in scenarios.values() if "tenants" in options}
    assert used == {str(path) for path in (SCENARIOS / "tenants").iterdir()}


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


def test_files_are_searched_next_to_the_scenario_first(tmp_path, monkeypatch):
    here, away = tmp_path / "here", tmp_path / "away"
    for directory in (here, away):
        directory.mkdir()
        (directory / "both.sql").write_text("SELECT 1;")
    (away / "a@b.sql").write_text("SELECT 2;")
    (here / "mine.yaml").write_text("")
    monkeypatch.chdir(here)
    scripts = ["both.sql", "both.sql@3", "a@b.sql", "missing.sql", "builtin:select-only", str(here / "both.sql")]
    write_scenario(away / "s.yaml", "density", {"script": scripts, "tenants": "mine.yaml", "pg_bin": "both.sql", "vcpus": 0.5})
    options = read_scenario(away / "s.yaml").options
    assert options["script"] == [f"{away}/both.sql", f"{away}/both.sql@3", f"{away}/a@b.sql", *scripts[3:]]
    assert options["tenants"] == "mine.yaml" and options["pg_bin"] == "both.sql" and options["vcpus"] == 0.5
    (here / "t.yaml").write_text("study: density\noptions: {init_script: both.sql, script: [both.sql]}")
    assert read_scenario(Path("t.yaml")).options == {"init_script": "both.sql", "script": ["both.sql"]}


def test_files_in_variants_are_searched_next_to_the_scenario_too(tmp_path, monkeypatch):
    here, away = tmp_path / "here", tmp_path / "away"
    for directory, names in ((here, ("a.sql", "mine.sql")), (away, ("a.sql", "b,c.sql", "postgresql.conf"))):
        directory.mkdir()
        for name in names:
            (directory / name).write_text("SELECT 1;")
    monkeypatch.chdir(here)
    variants = ['a:script="a.sql@2,b,c.sql,mine.sql",jit=off', "b:Settings-From=postgresql.conf", "c:work_mem=a.sql", "d"]
    write_scenario(away / "s.yaml", "compare", {"variant": variants, "workload": "tpcb-like"})
    found = read_scenario(away / "s.yaml").options["variant"]
    assert [parse_variant(text) for text in found[:2]] == [
        ("a", {"script": f"{away}/a.sql@2,{away}/b,c.sql,mine.sql", "jit": "off"}),
        ("b", {"Settings-From": f"{away}/postgresql.conf"}),
    ]
    assert found[2:] == variants[2:]
    assert apply(DensityRequest(), parse_variant(found[0])[1]).script == (f"{away}/a.sql@2", f"{away}/b,c.sql", "mine.sql")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study: density\noptions: {vcpu: 4}", "'vcpu' is not an option; check its spelling"),
        ("study: density\noptions: {vcpus: -1}", "'vcpus': input should be greater than 0, but it is -1"),
        ("study: dnsity", "there is no study 'dnsity'; there are balloon-limits, compare, "),
        ("options: {}", "'study' is missing"),
        ("study: [", "line 1: this is not YAML"),
        ("- 1", "a scenario is a mapping with 'study' and 'options', but this is a list"),
        ("", "a scenario is a mapping with 'study' and 'options', but this is a NoneType"),
        ("study: density\nschema: other/1", "'schema': input should be 'pgherd/scenario/1', but it is 'other/1'"),
        ("study: density\noptions: {scale: 10,\n  scale: 50}", "line 3: this is not YAML: the key 'scale' is repeated"),
        ("study: &a density\ntitle: *a", "line 2: this is not YAML: aliases (*name) are not allowed"),
        ("[" * 100_000, "it is nested too deeply"),
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
    dsns = ["postgresql://me:s3cret@h/app", "host=i password=s3cret"]
    options = {"dsn": dsns, "variant": ('b:dsn="host=h password=s3cret"',), "clients": 2}
    write_scenario(tmp_path / "s.yaml", "compare", options)
    text = (tmp_path / "s.yaml").read_text()
    assert "s3cret" not in text and "postgresql://me:***@h/app" in text and "password=***" in text
    nested = {"name": "a", "study": "scaling", "options": {"dsn": dsns[0], "settings_from": dsns[1], "clients": [1, 2]}}
    write_scenario(tmp_path / "c.yaml", "compare", {"scenarios": [nested, {**nested, "name": "b"}]})
    text = (tmp_path / "c.yaml").read_text()
    assert "s3cret" not in text and text.count("host=i password=***") == 2
    with pytest.raises(UsageError) as caught:
        request("density", {"dsn": {"postgresql://me:s3cret@h/app": 1}})
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


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("a", "a", {}),
        ("a:", "a", {}),
        (" big : shared_buffers = 1GB , pg-bin=/usr/lib/16/bin ", "big", {"shared_buffers": "1GB", "pg-bin": "/usr/lib/16/bin"}),
        ('a:search_path="x,y",jit=off', "a", {"search_path": "x,y", "jit": "off"}),
        ('a:x="say ""it"", then",y=""', "a", {"x": 'say "it", then', "y": ""}),
        ("a:settings-from=host=h port=1", "a", {"settings-from": "host=h port=1"}),
        ("16.2:pg_bin=/a:b", "16.2", {"pg_bin": "/a:b"}),
    ],
)
def test_reads_names_keys_and_values(text: str, name: str, changes: dict[str, str]) -> None:
    assert parse_variant(text) == (name, changes)


@given(NAMES, st.dictionaries(NAMES, st.text(st.characters(blacklist_categories=("Cs",))), max_size=4))
def test_any_value_survives_in_double_quotes(name: str, changes: dict[str, str]) -> None:
    text = ",".join(f'{key}="{value.replace(chr(34), chr(34) * 2)}"' for key, value in changes.items())
    assert parse_variant(f"{name}:{text}") == (name, changes)


@given(st.text(max_size=40))
def test_never_fails_but_with_its_own_message(text: str) -> None:
    try:
        parse_variant(text)
    except UsageError as error:
        assert "variant" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name is missing"),
        (":a=1", "the name is missing"),
        ("a b:c=1", "'a b' is not a valid name"),
        ("a:jit", "variant 'a': 'jit' is not key=value"),
        ("a:jit=off,,x=1", "'' is not key=value"),
        ("a:jit=", "'jit' has no value"),
        ("a:pg-bin=x,pg_bin=y", "'pg_bin' occurs twice"),
        ('a:x=1"2"', "quote the whole value"),
        ('a:x="1', "quote the whole value"),
    ],
)
def test_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_variant(text)
    assert message in str(error.value)


def test_options_replace_and_the_rest_are_settings() -> None:
    request = DensityRequest(scale=5, set=("jit=on",))
    changed = apply(request, {"scale": "20", "pg-version": "15", "vcpus": "0.5", "databases": "1,2", "jit": "off", "my.thing": "x"})
    assert (changed.scale, changed.pg_version, changed.vcpus, changed.databases) == (20, "15", 0.5, (1, 2))
    assert changed.set == ("jit=on", "jit=off", "my.thing=x"), "a later setting of the same name wins"
    assert request.set == ("jit=on",)
    assert apply(request, {}) == request
    several = "host=db1,db2 dbname=app target_session_attrs=read-write"
    assert apply(request, {"dsn": several}).dsn == (several,), "its hosts are those of one server"


def test_what_a_variant_says_takes_back_what_says_it_in_another_way() -> None:
    assert apply(DensityRequest(pg_bin="/a"), {"pg-version": "17"}).pg_bin is None
    assert apply(DensityRequest(pg_version="17"), {"pg-bin": "/a", "pg-version": "16"}).pg_version == "16"
    assert apply(DensityRequest(script=("a.sql",), init_script="b.sql"), {"workload": "tpcb-like"}).script == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": "2"}, "'seed' cannot differ between variants"),
        ({"set": "a=b"}, "write each setting as a key"),
        ({"pg-bim": "/x"}, "(did you mean pg-bin?); a key is one of"),
        ({"vcpu": "2"}, "did you mean vcpus?"),
        ({"a+b": "2"}, "neither an option nor a setting; a key is one of"),
        ({"vcpus": "two"}, "variant 'v': 'vcpus': input should be a valid number"),
        ({"runtime": "external"}, "'runtime': input should be 'process', 'cgroup' or 'vm', but it is 'external'"),
    ],
)
def test_names_the_variant_the_key_and_what_is_known(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        apply(DensityRequest(), changes, "v")
    assert message in str(error.value)
    assert str(error.value).startswith("variant 'v': ")


def test_expands_all_and_refuses_what_cannot_be_compared() -> None:
    result = expand(DensityRequest(scale=3), ["base", "big:shared_buffers=1GB"])
    assert {name: item.set for name, item in result.items()} == {"base": (), "big": ("shared_buffers=1GB",)}
    for texts, message in (
        (["a", "a:jit=off"], "'a' occurs twice"),
        (["a", "b"], "'a' and 'b' are the same"),
        (["a:scale=3", "b"], "are the same"),
        (["a:jit=off,geqo=on", "b:geqo=on,jit=off"], "are the same"),
    ):
        with pytest.raises(UsageError) as error:
            expand(DensityRequest(scale=3), texts)
        assert message in str(error.value)
