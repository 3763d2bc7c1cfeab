import pytest

from pgherd.studies.database_size.published import E10, megabytes


def test_e10_is_complete():
    assert list(E10) == [1, 10, 100, 1000, 2500, 5000, 10000]
    assert all(megabytes(scale) for scale in E10)


def test_its_units_are_postgresqls():
    assert megabytes(10) == 157
    assert megabytes(1000) == 15 * 1024
    assert megabytes(7) is None
    # pgbench makes 14.95 MB per unit of scale: in millions of bytes scale 10 would be 164.
    assert megabytes(10) == pytest.approx(7.4 + 14.95 * 10, rel=0.01)
