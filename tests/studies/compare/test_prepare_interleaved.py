import dataclasses

import pytest

from pgherd.model.deployment import Volume
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import settings_validation
from pgherd.prepare import prepared_study
from pgherd.studies.compare import prepare_interleaved
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityRequest


@pytest.fixture(autouse=True)
def _without_validation(own_directories, monkeypatch):
    monkeypatch.setattr(settings_validation, "validate", lambda *inputs: None)


def completed(**requested):
    return prepared_study.prepare(LocalNode(), "density", DensityRequest(databases=(1,), host_memory="2GB", **requested), dry=True)


def chosen(made, metric=None, **requested):
    requests = {name: DensityRequest() for name in made}
    return prepare_interleaved.choose(CompareRequest(variant=("a", "b:jit=off"), **requested), requests, made, metric)


def changed(prepared, **options):
    return dataclasses.replace(prepared, options=prepared.options.model_copy(update=options))


def test_by_default_where_it_is_honest():
    plain = completed()
    created = {"a": plain, "b": plain}
    result = chosen(created)
    assert result.in_slices and result.explanation.startswith(
        "Variants are interleaved in time slices: 3 servers run at once, a twice (the A/A pair)"
    )
    assert set(result.memory) == {"a", "b"}
    assert chosen(created, "cpu_per_tx").in_slices
    late = chosen(created, "p95")
    assert not late.in_slices and "p95 needs longer trials" in late.explanation
    assert chosen(created, "p95", interleave="slices").in_slices, "who asks for it gets it"
    assert chosen(created, interleave="trials").explanation.startswith("Variants are interleaved by trials, as requested")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"read_only": False}, "delayed writes"),
        ({"huge_page_bytes": 2**30}, "huge pages are a setting"),
        ({"transparent_huge_pages": True}, "huge pages are a setting"),
        ({"cpu_mode": "cpuset"}, "with --cpu-mode cpuset"),
        ({"volumes": (Volume(name="on-wal", path="/elsewhere"),), "roles": {"wal": "on-wal"}}, "their volumes"),
        ({"volumes": (Volume(name="data", kind="loop", size=2**30),)}, "their volumes"),
        ({"dsn": "host=elsewhere"}, "an external server keeps running"),
        ({"cpu_mode": "quota", "vcpus": 0.02}, "a CPU quota of 0.02 vCPUs is too small for one slice"),
        ({"rate": 100.0}, "at a given rate transactions do not wait"),
        ({"runtime": "vm"}, "clients in guests cannot be stopped"),
    ],
)
def test_not_where_servers_would_disturb_each_other(options, reason):
    plain = completed()
    created = {"a": plain, "b": changed(plain, **options)}
    result = chosen(created)
    assert not result.in_slices and result.explanation.startswith("Variants are interleaved by trials: ") and reason in result.explanation
    with pytest.raises(UsageError, match=f"--interleave slices is not possible: .*{reason}"):
        chosen(created, interleave="slices")


def test_not_where_a_transaction_is_long_beside_a_turn():
    plain = completed()
    slow = {"a": plain, "b": dataclasses.replace(plain, pace=0.0042)}
    assert "a transaction takes 4.2 ms, too long to be counted in slices of 63 ms" in chosen(slow).explanation
    assert chosen({"a": plain, "b": dataclasses.replace(plain, pace=0.0003)}).in_slices
    many = {"a": plain, "b": changed(plain, clients=100)}
    assert "with 100 clients a transaction waits too long" in chosen(many).explanation


def test_not_where_a_state_is_asked_for_or_memory_is_short():
    plain = completed()
    created = {"a": plain, "b": plain}
    assert "--start-state fresh" in chosen(created, start_state="fresh").explanation
    assert chosen(created, start_state="warm").in_slices
    short = dataclasses.replace(plain, environment=plain.environment.model_copy(update={"memory": 300 * 2**20}))
    assert "of memory at once, and the host's budget is 300 MB" in chosen({"a": short, "b": short}).explanation


def test_memory_that_was_asked_for_is_given_and_the_rest_is_shared():
    plain = dataclasses.replace(changed(completed(), container_memory=2**30), memory=2**30)
    created = {"a": plain, "b": plain}
    requests = {"a": DensityRequest(), "b": DensityRequest(memory="1GB")}
    result = prepare_interleaved.choose(CompareRequest(variant=("a", "b")), requests, created, None)
    assert result.memory["b"] == 2**30 and 256 * 2**20 < result.memory["a"] <= 512 * 2**20
    assert prepare_interleaved.memory(created, result.memory) == 2 * result.memory["a"] + 2**30


def test_servers_of_somebody_else_are_up_all_the_time():
    plain = completed()
    theirs = {name: changed(plain, dsn=f"host={name}") for name in "ab"}
    assert chosen(theirs).explanation.startswith("The external servers keep running")
    with pytest.raises(UsageError, match="--interleave does not apply to external servers"):
        chosen(theirs, interleave="slices")
