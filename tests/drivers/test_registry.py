import pytest

from pgherd.drivers.registry import driver, drivers
from pgherd.model.errors import UsageError


def test_finds_every_driver_by_its_own_name() -> None:
    assert "pgbench" in drivers()
    assert all(name == found.name for name, found in drivers().items())


def test_an_unknown_driver_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no driver 'idle'; known: .*pgbench"):
        driver("idle")
