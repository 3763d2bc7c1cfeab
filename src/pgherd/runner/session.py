"""Resources that a run owns while it executes: host share, directories, runtimes and journal. They are released at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgherd.host import paths, swap
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.reservation import reserve
from pgherd.host.server_user import server_account
from pgherd.host.swap import ActiveSwap
from pgherd.model.deployment import Host
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment
from pgherd.node import interruption, process
from pgherd.node.protocol import Node
from pgherd.postgres.tcp_access import TcpListener
from pgherd.runner.progress import RunObserver
from pgherd.runtimes.runtime import Runtime
from pgherd.runtimes.runtime_selection import RuntimePool


@dataclass(frozen=True)
class RunSession:
    """Resources of a run.

    Attributes:
        account: operating system user that servers run as. None: the current user.
        work: directory of the servers' data, the drivers' output and copies of the user's scripts. ``account`` has access.
        sockets: directory of the servers' socket directories. ``account`` has access.
        cache: directory of templates and other files that outlive the run.
        runtimes: runtimes that share the run's host share. Each is opened when the first container needs it.
        platform: processes and cgroups to track separately, see pgherd.runner.deploy.tracked_processes.
        swap: swap that was created for this run, if ``environment`` request it.
        opening: TCP access to the servers for clients on another host, if there are any.
    """

    node: Node
    facts: HostFacts
    journal: Journal
    runtimes: RuntimePool
    account: str | None
    work: Path
    sockets: Path
    cache: Path
    platform: tuple[str, ...] = ()
    environment: RunEnvironment | None = None
    swap: ActiveSwap | None = None
    opening: TcpListener | None = None

    def runtime(self, name: str) -> Runtime:
        """Return the runtime of this name, opened. Raises as ``RuntimePool.get``."""
        return self.runtimes.get(name)


@contextlib.contextmanager
def open_session(node: Node, run: str, environment: RunEnvironment, watcher: RunObserver, *, reserved: bool = True) -> Iterator[RunSession]:
    """Create the resources of a run, and release them on exit.

    Unless ``reserved`` is False, the run's cores and memory are reserved: other runs cannot use them. ``environment.memory`` of 0
    means no limit.

    Raises:
        CapabilityError: other runs leave too few resources, or the host lacks a feature.
        UsageError: the account cannot be used.
    """
    account = server_account(environment.run_as)
    process.allow_many()
    facts = gather(node)
    state = paths.state_dir()
    with contextlib.ExitStack() as stack:
        all_cores = environment.cores >= facts.cores
        with interruption.undisturbed():  # a signal must not leave a resource outside the stack
            cpus = None
            if reserved:
                cores = None if all_cores else environment.cores
                cpus = stack.enter_context(reserve(state, run, cores, environment.memory, facts)).cpus
            journal = Journal.open(node, state, run)
            stack.callback(journal.end, watcher.note)
        active_swap = None if environment.swap is None else swap.make(node, journal, environment.swap, str(paths.cache_dir()))
        suffix = f"{run[-4:]}-{journal.id[:8]}"  # runs at the same time may end in the same digits
        work = paths.work_tree(node, journal, run, account)
        sockets = Path(paths.socket_root(node, journal))
        swap_size = None if environment.swap is None else environment.swap.size
        budget = Host(cores=environment.cores, memory=environment.memory or None, swap=swap_size)
        runtimes = RuntimePool(node, journal, facts, budget, suffix, cpus, environment.vm_memory_policy)
        stack.callback(_close, runtimes)
        runtimes.get(environment.runtime)  # fails early if the host cannot provide the runtime
        yield RunSession(
            node, facts, journal, runtimes, account, work, sockets, paths.cache_dir(), environment.track, environment, active_swap
        )


def _close(runtimes: RuntimePool) -> None:
    """Close the runtimes. A failure must not prevent the answer: the journal keeps what remains, tries again at its end, and reports it."""
    with contextlib.suppress(OSError):
        runtimes.close()
