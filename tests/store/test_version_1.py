from pgherd.metrics.sampler import metrics
from pgherd.store.version_1 import ENTITIES, METRICS


def test_each_old_name_means_one_metric_of_today():
    assert set(METRICS.values()) <= set(metrics())
    assert len(set(METRICS.values())) == len(METRICS)


def test_no_name_of_today_is_an_old_one():
    assert not set(METRICS) & set(metrics())
    assert not set(ENTITIES) & set(ENTITIES.values())
