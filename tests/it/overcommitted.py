"""Two servers that share less memory than they have been given: brought about by a program of its own, which a test can kill.

``python overcommitted.py STATE_AND_CACHE RUN KIND MEMORY_MB``: makes swap, starts the servers, says what it made and waits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgherd.host.facts import gather
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.load import Load, Phase
from pgherd.model.run import RunEnvironment, Swap, SwapKind
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import runnable
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession, open_session

NODE, MB = LocalNode(), 2**20
WHOLE = 360
"""MB of the run's budget: two containers of half of it."""


def swap(kind: SwapKind, directory: Path) -> Swap:
    """256 MB of the kind; zram may take a quarter of it."""
    if kind == "none":
        return Swap(kind=kind)
    more = {"memory": 64 * MB} if kind == "zram" else {"path": str(directory)}
    return Swap.model_validate({"kind": kind, "size": 256 * MB, **more})


def trial(memory: int, repeat: int = 0, *, staging: str = "cgroup-limit", seconds: float = 1.2) -> Trial:
    """Both databases busy in turn within ``memory`` MB."""
    used = installations.choose(NODE)
    settings = {"shared_buffers": "120MB", "max_connections": "20", "autovacuum": "off"}
    server = Server(bin=used.bin, version=used.version, settings=settings, databases=(Database(scale=7),))
    names = ("a", "b")
    containers = tuple(Container(name=name, runtime="cgroup", memory=WHOLE * MB // 2, servers=(server,)) for name in names)
    host = Host.model_validate({"memory": memory * MB, "overcommit_by": staging, "containers": containers})
    phases = tuple(
        Phase(
            name=f"{busy}-busy",
            warmup=0.5,
            seconds=seconds,
            loads={f"local/{name}/pg/bench": Load(clients=3 if name == busy else 1, client_placement="outside") for name in names},
        )
        for busy in names
    )
    return Trial(point={"memory": memory}, repeat=repeat, deployment=Deployment(hosts=(host,)), phases=phases)


@contextmanager
def up(run: str, kind: SwapKind, directory: Path) -> Iterator[tuple[RunSession, Deployer]]:
    """The surroundings of a run of ``WHOLE`` MB with swap of that kind, and its fleet."""
    whole = gather(NODE).cores
    around = RunEnvironment(runtime="cgroup", cores=whole, memory=WHOLE * MB, swap=swap(kind, directory))
    with open_session(NODE, run, around, RunObserver()) as opened:
        used: Installation = installations.choose(NODE)
        deployer = Deployer(opened, {used.bin: runnable(NODE, used.bin, used.version, opened)}, RunObserver())
        try:
            yield opened, deployer
        finally:
            deployer.close()


def main() -> None:
    """Bring it about and wait to be killed."""
    directory, run, kind, memory = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    with up(run, kind, directory) as (opened, deployer):  # type: ignore[arg-type]
        deployer.apply(trial(memory))
        assert opened.swap is not None
        groups = set(opened.runtime("cgroup").budget_groups().values())
        print(opened.swap.path, *sorted(groups), sep="\n", flush=True)
        print("up", flush=True)
        time.sleep(300)


if __name__ == "__main__":
    main()
