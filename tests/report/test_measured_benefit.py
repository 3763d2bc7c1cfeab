import pytest

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunRecord
from pgherd.report.measured_benefit import differing, measured_benefits, of_run
from pgherd.store.run_directory import RunDirectory

ON_WAL = {"volumes": [{"name": "on-wal", "path": "/wal"}], "roles": {"wal": "on-wal"}}


def record(run="20260101-000000-compare-aaaa", host="here", old=None, new=None, ratio=(1.05, 1.02, 1.08), metric="throughput"):
    variants = [
        {"name": "base", "study": "density", "options": {"settings": {"a": "1"}, "workload": "orders", "seed": 1} | (old or {})},
        {"name": "other", "study": "density", "options": {"settings": {"a": "1"}, "workload": "orders", "seed": 2} | (new or {})},
    ]
    value, low, high = ratio
    row = {
        "variant": "other",
        "metric": metric,
        "ratio_to_baseline": Finding(value=value, unit="", low=low, high=high, confidence=0.95, n=9),
    }
    return RunRecord(
        run=run,
        study="compare",
        options={"variants": variants, "baseline": "base"},
        started=0,
        pgherd="1",
        hosts={"local": HostFacts(hostname=host, kernel="6", cores=1, logical_cpus=1, memory=1)},
        analysis=Analysis(answer="", grade="A", tables={"comparison": [row]}),
    )


@pytest.mark.parametrize(
    ("new", "check"),
    [
        ({"settings": {"a": "1", "wal_compression": "lz4"}}, "wal-compression"),
        ({"volumes": [{"name": "on-wal", "path": "/wal"}], "roles": {"wal": "on-wal"}}, "separate-wal-device"),
        ({"data_checksums": False}, "data-checksums"),
        ({"settings": {"a": "1", "checkpoint_completion_target": "0.5"}}, "checkpoint-completion-target"),
        ({"settings": {"a": "1", "huge_pages": "on", "huge_page_size": "2MB"}, "transparent_huge_pages": False}, "huge-pages"),
    ],
)
def test_a_comparison_that_changed_one_thing_tells_what_it_was_worth(new, check):
    [(result, worth)] = of_run(record(new=new))
    assert result == check and "throughput +5.0 % (+2.0 % to +8.0 %, n = 9), workload orders, grade A" in worth.text and "→" in worth.text


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"volumes": [{"name": "on-wal", "path": "/wal"}], "roles": {"wal": "on-wal"}}, "all on one volume → WAL on /wal: throughput"),
        ({"volumes": [{"name": "on-wal", "kind": "loop", "size": 1}], "roles": {"wal": "on-wal"}}, "→ WAL on a loop device: throughput"),
        ({"volumes": [{"name": "x", "path": "/a"}], "roles": {"wal": "x", "temp": "x"}}, "→ WAL on /a, temp on /a: throughput"),
    ],
)
def test_places_are_told_in_words(new, message):
    [(_, worth)] = of_run(record(new=new))
    assert message in worth.text


@pytest.mark.parametrize(
    "changes",
    [
        {"new": {}},
        {"new": {**ON_WAL, "checksums": False}},
        {"new": {"transparent_huge_pages": True}},
        {"new": {"settings": {"a": "1", "wal_compression": "lz4", "max_wal_size": "1GB"}}},
        {"new": ON_WAL, "metric": "p95"},
        {"new": ON_WAL, "ratio": (None, None, None)},
    ],
)
def test_a_comparison_that_changed_several_or_nothing_tells_nothing(changes):
    assert of_run(record(**changes)) == []


def test_a_run_without_arms_tells_nothing():
    assert of_run(record().model_copy(update={"options": {}})) == []


def consolidated(*rows):
    result = [{"shared_buffers_percent": 25, "overcommit": 0.0, "trials": 3, **row} for row in rows]
    request = {"workload": "orders", "vcpus": 2.0}
    analysis = Analysis(answer="", grade="B", tables={"consolidation": result})
    return record().model_copy(update={"study": "consolidation", "options": request, "analysis": analysis})


FIRST = {"layout": "shared-server", "ratio": Finding(value=None, unit="ratio", n=0), "vcpu_corrected": Finding(value=10.0, unit="tps", n=3)}
APART = {"layout": "dedicated", "ratio": Finding(value=1.1, unit="ratio", low=1.05, high=1.15, confidence=0.95, n=3)}


def test_layouts_beside_each_other_tell_what_a_server_for_each_database_was_worth():
    [(check, worth)] = of_run(consolidated(FIRST, APART, APART | {"overcommit": 0.3}))
    assert check == "dedicated-server"
    assert worth.text == (
        "layout shared-server → dedicated, each with dedicated vCPUs, buffers 25 %: "
        "throughput +10.0 % (+5.0 % to +15.0 %, n = 3), workload orders, grade B"
    )


@pytest.mark.parametrize(
    "rows", [(), (FIRST,), (APART,), (FIRST | {"layout": "shared-container"}, APART), (FIRST, {"layout": "dedicated", "ratio": None})]
)
def test_layouts_without_the_two_tell_nothing(rows):
    assert of_run(consolidated(*rows)) == []


def test_only_this_hosts_runs_are_asked_the_latest_first(tmp_path):
    for number, host in enumerate(["here", "there", "here"]):
        directory = RunDirectory.create(tmp_path, "compare")
        directory.save(record(run=f"run-{number}", host=host, new=ON_WAL))
    (tmp_path / "20260101-000000-compare-bbbb").mkdir()
    (tmp_path / "20260101-000000-compare-bbbb" / "run.json").write_text("{")
    result = measured_benefits(tmp_path, "here")["separate-wal-device"]
    assert sorted(worth.run for worth in result) == ["run-0", "run-2"]
    assert measured_benefits(tmp_path / "gone", "here") == {}


def test_differences_name_options_and_settings():
    assert differing({"settings": {"x": "1"}, "seed": 1}, {"settings": {"x": "2"}, "seed": 2}) == {"settings.x": ("1", "2")}
    assert differing({"settings": None}, {"workload": "orders"}) == {"workload": (None, "orders")}


def test_the_weight_of_a_run_and_pgbenchs_own_script_are_told():
    scripts = {"scripts": [{"source": "builtin:simple-update"}], "workload": "pgbench"}
    item = record(old=scripts, new=scripts | ON_WAL)
    weak = item.model_copy(update={"analysis": item.analysis.model_copy(update={"grade": "C"})})
    [(_, worth)] = of_run(weak)
    assert worth.text.endswith("workload simple-update, grade C: an indication only")
