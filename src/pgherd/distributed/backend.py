"""What a run stands on while it lives: this host, or the hosts of a cluster; the rest of pgherd need not know which."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pgherd.cluster.remote import Engine
from pgherd.distributed.cluster_bench import ClusterBench
from pgherd.distributed.crew import Crew
from pgherd.distributed.placing import OnHosts
from pgherd.distributed.preparation import prepare_over
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.run import RunRecord, Surroundings
from pgherd.model.study import RunnableStudy
from pgherd.node.protocol import Node
from pgherd.prepare.prepared_study import Prepared, runnable
from pgherd.prepare.registry import prepare
from pgherd.runner.deploy.fleet import Fleet
from pgherd.runner.live_writer import LiveWriter
from pgherd.runner.play.bench import Bench, LocalBench
from pgherd.runner.session import session
from pgherd.store.live import told_dir
from pgherd.study.cluster_options import CLUSTER_FIELDS, ClusterRequest
from pgherd.study.registry import study_of


def complete(node: Node, study: str, asked: Model, *, dry: bool = False) -> tuple[Prepared, dict[str, HostFacts]]:
    """Complete and check a request for where it is to run, and the facts of each host there.

    Raises:
        UsageError: it asks for something wrong, or for more than there is; there is no such cluster.
        CapabilityError: a host cannot do it.
    """
    if not isinstance(asked, ClusterRequest) or asked.cluster is None:
        _insist_no_host(asked)
        prepared = prepare(node, study, asked, dry=dry)
        return prepared, {"local": prepared.facts}
    with contextlib.closing(_connect(asked.cluster, asked.cluster_certs)) as engine:
        return prepare_over(engine, study, asked, dry=dry)


@contextlib.contextmanager
def standing(
    node: Node, run: str, record: RunRecord, surroundings: Surroundings, told: LiveWriter
) -> Iterator[tuple[Bench, RunnableStudy[Any]]]:
    """The bench on which a run's trials are played, and the study as it is run there; all of it goes at the end.

    Raises:
        CapabilityError: a budget does not fit beside other runs, or a host cannot give what is needed.
        UsageError: the installation is not what it was; the cluster does not answer.
        TrialError: not all hosts of the run are there.
    """
    study = study_of(record.study)
    if surroundings.cluster is None:
        with session(node, run, surroundings, told) as opened:
            usable = {bin_: runnable(node, bin_, version, opened) for bin_, version in record.postgres.items()}
            fleet = Fleet(opened, usable, told)
            told.output = lambda number: fleet.scratch / f"{number:04d}"
            try:
                yield LocalBench(fleet), study
            finally:
                fleet.close()
        return
    with contextlib.closing(_connect(surroundings.cluster.address, surroundings.cluster.tls)) as engine:
        bench = ClusterBench(Crew(engine), surroundings.cluster, run, surroundings, record.postgres, told)
        told.output = partial(told_dir, told.run)
        try:
            bench.open()
            yield bench, OnHosts(study, surroundings.cluster)
        finally:
            bench.close()


def _insist_no_host(asked: Model) -> None:
    """That nothing is said of the hosts of a cluster where none is named."""
    for name in sorted(CLUSTER_FIELDS & asked.model_fields_set):
        if getattr(asked, name) != type(asked).model_fields[name].default:
            raise UsageError(f"--{name.replace('_', '-')} says something of the hosts of a cluster; name the cluster with --cluster")


def _connect(cluster: str, tls: str | None) -> Engine:
    from pgherd.cluster.engine import connect  # brings in Dask

    return connect(cluster, None if tls is None else Path(tls))
