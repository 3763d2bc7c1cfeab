import pytest

from pgherd.model.load import Load, Phase
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.runner.loop import with_settings
from pgherd.study.database_options import DatabaseOptions, target

SAID = {"a": {"work_mem": "8MB", "jit": "off"}, "b": {"work_mem": "16MB", "jit": "off", "fsync": "off"}}


class FakeBackend:
    def __init__(self):
        self.asked = []

    def settings(self, target=None):
        self.asked.append(target)
        return SAID[target.split("/")[1]] if target else {"jit": "off"}


def trial(container, variant=None, **server):
    options = DatabaseOptions(host_cores=2, host_memory=2**30, vcpus=1, pg_bin="/pg", pg_version="18.6", **server)
    point = {"variant": variant} if variant else {"databases": 1}
    phase = Phase(warmup=0, seconds=1, loads={target(container): Load(clients=1)})
    return Trial(point=point, deployment=options.deploy((container,)), phases=(phase,))


def record():
    return RunRecord(run="r", study="compare", options={}, started=0.0, pgherd="0")


def test_a_run_without_variants_asks_once():
    backend = FakeBackend()
    result = with_settings(with_settings(record(), trial("a"), backend), trial("a"), backend)
    assert result.settings == {"jit": "off"} and result.variant_settings == {} and backend.asked == [None]


def test_each_variant_is_asked_once_and_what_they_share_stands_apart():
    backend, result = FakeBackend(), record()
    for container, variant in (("a", "base"), ("a", "base (A/A)"), ("b", "big"), ("a", "base")):
        result = with_settings(result, trial(container, variant), backend)
    assert len(backend.asked) == 2
    assert result.variant_settings == {"base": SAID["a"], "big": SAID["b"]} and result.settings == {"jit": "off"}


class ExternalBackend:
    """An external server whose settings are changed by its administrator; {} when it is gone."""

    def __init__(self, *reported):
        self.reported = list(reported)

    def settings(self, target=None):
        return self.reported.pop(0)


@pytest.mark.parametrize("variant", [None, "base"])
def test_changed_settings_of_an_external_server_are_named_once(variant):
    begun, later = {"jit": "off", "shared_buffers": "128MB"}, {"shared_buffers": "1GB", "work_mem": "8MB"}
    backend, result = ExternalBackend(begun, begun, {}, later, later), record()
    for _ in range(3):
        result = with_settings(result, trial("a", variant, dsn="host=h"), backend)
    assert result.settings == begun and result.resumed_on_changed_host == []
    for _ in range(2):
        result = with_settings(result, trial("a", variant, dsn="host=h", pooled=True, direct="host=h port=5432"), backend)
    assert result.settings == begun and not backend.reported
    server = "the external server of variant 'base'" if variant else "the external server"
    assert result.resumed_on_changed_host == [
        f"During the run, settings of {server} were changed (jit was off, now the default; shared_buffers was 128MB, now 1GB; "
        "work_mem was the default, now 8MB): results before and after may differ"
    ]


def test_behind_a_pooler_settings_are_read_once():
    backend, result = ExternalBackend({"work_mem": "8MB"}), record()
    for _ in range(2):
        result = with_settings(result, trial("a", dsn="host=h", pooled=True), backend)
    assert result.settings == {"work_mem": "8MB"}
