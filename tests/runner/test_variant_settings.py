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


def trial(container, variant=None):
    options = DatabaseOptions(host_cores=2, host_memory=2**30, vcpus=1, pg_bin="/pg", pg_version="18.6")
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
