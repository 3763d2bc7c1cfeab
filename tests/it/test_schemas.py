"""A schema per tenant on a real server, against a database per tenant: each tenant's load changes its own tables only."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.run import RunEnvironment
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.prepare.prepared_study import runnable
from pgherd.runner import loop
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.deploy.servers import require_schema
from pgherd.runner.execute.local_backend import LocalBackend
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import open_session
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.consolidation.options import ConsolidationOptions, Layout
from pgherd.studies.consolidation.propose import trial
from pgherd.workloads import bundled_scripts

NODE, MEMORY = LocalNode(), 2**30
TENANTS = ("db1", "db2", "db3")
CHANGES = {
    "tpcb-like": "SELECT count(*), coalesce(sum(delta), 0) = (SELECT sum(abalance) FROM {0}.pgbench_accounts) FROM {0}.pgbench_history",
    "orders": "SELECT sum(d_next_o_id) - 10 * 3001, sum(d_ytd) = (SELECT sum(w_ytd) FROM {0}.warehouse) FROM {0}.district",
}
"""Workload → transactions that wrote to a tenant's tables, and whether its tables agree with each other."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """State and cache, in a directory that the servers' account can enter."""
    root = Path(tempfile.mkdtemp(prefix="schemas-"))
    root.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(root / "state"))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        yield root
    shutil.rmtree(root)


@contextmanager
def deployed(run: str, bin_: str, version: str) -> Iterator[Deployer]:
    around = RunEnvironment(runtime="process", cores=os.cpu_count() or 1, memory=MEMORY)
    with open_session(NODE, run, around, RunObserver()) as opened:
        deployer = Deployer(opened, {bin_: runnable(NODE, bin_, version, opened)}, RunObserver())
        try:
            yield deployer
        finally:
            deployer.close()


@pytest.mark.parametrize("layout", ["shared-server", "shared-database"])
@pytest.mark.parametrize("workload", CHANGES)
def test_each_tenant_changes_its_own_tables_only(place: Path, layout: Layout, workload: str) -> None:
    used, mix = installations.choose(NODE), bundled_scripts.mix(workload)
    options = ConsolidationOptions(
        databases=3,
        host_cores=2,
        host_memory=MEMORY,
        vcpus=1,
        share=MEMORY // 8,
        runtime="process",
        cpu_mode="none",
        pg_bin=used.bin,
        pg_version=used.version,
        settings={"fsync": "off", "max_connections": "20"},
        workload=workload,
        scale=1,
        scripts=mix.scripts if mix else ({"source": "builtin:tpcb-like"},),
        variables=mix.variables if mix else {},
        read_only=False,
        check_consistency=True,
        client_placement="outside",
        start_state="fresh",
        plan=((2,), (1,), (0,)),
        duration=1.5,
        warmup=0.5,
    )
    planned = trial(options, {"layout": layout, "shared_buffers_percent": 25, "overcommit": 0.0}, 0, "planned")
    with deployed(f"20260101-000000-consolidation-{len(layout):02d}{len(workload):02d}", used.bin, used.version) as deployer:
        directory = RunDirectory.create(place / "runs", "consolidation")
        result, _ = loop._trial(directory, "0001", planned, LocalBackend(deployer), Thresholds(), RunObserver())
        assert result.error is None, result.error
        server = deployer.server("all")
        changes = {}
        for tenant in TENANTS:
            database, schema = ("bench", tenant) if layout == "shared-database" else (tenant, "public")
            changes[tenant], agree = server.sql(CHANGES[workload].format(schema), database=database)[0]
            assert agree, "a transaction is complete in one tenant's tables"
            server.disconnect([database])
        counted = {target.target.rpartition("/")[2]: target for target in result.phases[0].targets}
        assert changes["db1"] > 0 and changes["db2"] > 0 and changes["db3"] == 0, "the third tenant is idle"
        if workload == "tpcb-like":
            assert all(changes[tenant] >= counted[tenant].transactions for tenant in ("db1", "db2")), (
                "all that pgbench counted, and the warm-up"
            )
        if layout == "shared-database":
            tables = server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database="bench")
            stored = server.sql("SELECT count(*) FROM pg_db_role_setting", database="bench")
            assert (tables, stored) == ([(0,)], [(0,)]), "loading leaves no default search path"
            server.sql("CREATE SCHEMA empty", database="bench")
            server.disconnect(["bench"])
            for name in ("empty", "absent"):
                with pytest.raises(TrialError, match=f"loads of schema {name} .*division by zero"):
                    require_schema(server, Database(name=name, schema_of="bench"))
