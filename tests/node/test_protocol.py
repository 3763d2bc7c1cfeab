import inspect

import pytest

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.node.protocol import DataLoader, LoaderServer
from pgherd.postgres.instance import Instance
from pgherd.workloads.registry import loaders


def _names(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("workload", ["pgbench", "script"])
def test_what_workloads_give_can_make_a_template(tmp_path, workload):
    init = tmp_path / "init.sql"
    init.write_text("create table t (i int);")
    database = Database(workload=workload, init=str(init) if workload == "script" else None)
    (created,) = loaders(LocalNode(), [database], {})
    assert _names(DataLoader) == {"database", "identity", "size_estimate", "settings", "load"}
    assert all(hasattr(created, name) for name in _names(DataLoader))


def test_an_instance_is_what_loaders_need_to_know():
    fields = {name for name, _ in inspect.getmembers(Instance)} | set(inspect.signature(Instance).parameters)
    assert _names(LoaderServer) <= fields
