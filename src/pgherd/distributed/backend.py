"""Backend of a run: this host or the hosts of a cluster. Other modules use one interface for both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pgherd.cluster.interfaces import ClusterClient
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.cluster_backend import ClusterBackend
from pgherd.distributed.place_trial import ClusterStudy
from pgherd.distributed.prepare_cluster import prepare_over
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment, RunRecord
from pgherd.model.study import RunnableStudy
from pgherd.node.protocol import Node
from pgherd.prepare.prepared_study import PreparedStudy, prepare, runnable
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.execute.local_backend import Backend, LocalBackend
from pgherd.runner.progress import LiveWriter
from pgherd.runner.session import open_session
from pgherd.store.live_state import reported_dir
from pgherd.store.run_directory import RunDirectory
from pgherd.study.shared_options import CLUSTER_FIELDS, ClusterRequest
from pgherd.study.study import study_of


def complete(node: Node, study: str, asked: Model, *, dry: bool = False) -> tuple[PreparedStudy, dict[str, HostFacts]]:
    """Complete and check a request on its backend. Return the prepared study and the facts of each host.

    Raises:
        UsageError: an option is wrong, the request exceeds the hosts' resources, or the cluster does not exist.
        CapabilityError: a host cannot run the study.
    """
    if not isinstance(asked, ClusterRequest) or asked.cluster is None:
        _require_no_cluster_options(asked)
        prepared = prepare(node, study, asked, dry=dry)
        return prepared, {"local": prepared.facts}
    with contextlib.closing(_connect(asked.cluster, asked.cluster_certs)) as engine:
        return prepare_over(engine, study, asked, dry=dry)


@contextlib.contextmanager
def open_backend(
    node: Node, run: str, record: RunRecord, environment: RunEnvironment, writer: LiveWriter
) -> Iterator[tuple[Backend, RunnableStudy[Any]]]:
    """Open the backend of a run, and yield it with the study to run on it. Close it on exit.

    Raises:
        CapabilityError: other runs have reserved the cores or memory, or a host lacks a required capability.
        UsageError: the PostgreSQL installation has changed, or the cluster does not answer.
        TrialError: a host of the run is missing.
    """
    study = study_of(record.study)
    if environment.cluster is None:
        with open_session(node, run, environment, writer) as opened:
            usable = {bin_: runnable(node, bin_, version, opened) for bin_, version in record.postgres.items()}
            deployer = Deployer(opened, usable, writer)
            writer.output = lambda number: deployer.scratch / f"{number:04d}"
            try:
                yield LocalBackend(deployer), study
            finally:
                deployer.close()
        return
    with contextlib.closing(_connect(environment.cluster.address, environment.cluster.tls)) as engine:
        backend = ClusterBackend(
            AgentPool(engine), environment.cluster, run, environment, record.postgres, writer, RunDirectory(writer.run).argument
        )
        writer.output = partial(reported_dir, writer.run)
        try:
            backend.open()
            yield backend, ClusterStudy(study, environment.cluster)
        finally:
            backend.close()


def _require_no_cluster_options(asked: Model) -> None:
    """Require that no cluster option is set. Raises UsageError."""
    for name in sorted(CLUSTER_FIELDS & asked.model_fields_set):
        if getattr(asked, name) != type(asked).model_fields[name].default:
            raise UsageError(f"--{name.replace('_', '-')} requires a cluster; name one with --cluster")


def _connect(cluster: str, tls: str | None) -> ClusterClient:
    from pgherd.cluster.dask_client import connect  # imports Dask, which is slow and optional

    return connect(cluster, None if tls is None else Path(tls))
