import pytest

from pgherd.node.local import LocalNode
from pgherd.prepare.context import Basis
from pgherd.prepare.database_preparation import preparation
from pgherd.study.database_options import DatabaseRequest

pytestmark = pytest.mark.usefixtures("own_directories")


def _basis(**asked) -> Basis:
    with preparation(LocalNode(), DatabaseRequest(runtime="process", **asked), dry=True) as ground:
        return ground


@pytest.mark.parametrize(
    ("asked", "workload", "own"),
    [({}, "pgbench", False), ({"workload": "tpcb-like"}, "pgbench", False), ({"workload": "random-block"}, "random-block", True)],
)
def test_what_fills_the_database(asked, workload, own):
    basis = _basis(**asked)
    assert (basis.workload, basis.own is not None) == (workload, own)


def test_sql_of_ones_own_fills_it(tmp_path):
    for name in ("script.sql", "init.sql"):
        (tmp_path / name).write_text("SELECT 1;\n")
    assert _basis(script=(str(tmp_path / "script.sql"),), init_script=str(tmp_path / "init.sql")).workload == "script"


@pytest.mark.parametrize(("asked", "checksums"), [({}, True), ({"data_checksums": False}, False)])
def test_checksums_are_on_unless_asked_otherwise(asked, checksums):
    assert _basis(**asked).checksums is checksums
