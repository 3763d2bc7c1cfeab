"""What a run holds while it lives: its budget, its directories, its runtimes, its journal. All of it goes with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgherd.host import paths, swap
from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.reservation import reserve
from pgherd.host.swap import Made
from pgherd.model.deployment import Host
from pgherd.model.facts import HostFacts
from pgherd.model.run import Surroundings
from pgherd.node import interruption, process
from pgherd.node.protocol import Node
from pgherd.postgres.tcp_access import Opening
from pgherd.runner.observer import RunObserver
from pgherd.runtimes.choice import Runtimes
from pgherd.runtimes.runtime import Runtime


@dataclass(frozen=True)
class RunSession:
    """The open surroundings of a run.

    ``work`` holds the servers' data, the drivers' output and copies of the user's scripts while they run; ``sockets``
    the servers' socket directories. Both can be entered by ``account``. ``runtimes`` share the run's budget; each is opened
    when the first container needs it. ``platform`` names parts to account for (see pgherd.runner.deploy.platform). ``swap`` is what was
    made for this run, of what its ``surroundings`` ask. ``opening`` is how clients on another host reach its servers, if there are any.
    """

    node: Node
    facts: HostFacts
    journal: Journal
    runtimes: Runtimes
    account: str | None
    work: Path
    sockets: Path
    cache: Path
    platform: tuple[str, ...] = ()
    surroundings: Surroundings | None = None
    swap: Made | None = None
    opening: Opening | None = None

    def runtime(self, name: str) -> Runtime:
        """The runtime of this name, open; raises as ``Runtimes.get``."""
        return self.runtimes.get(name)


@contextlib.contextmanager
def session(node: Node, run: str, surroundings: Surroundings, watcher: RunObserver) -> Iterator[RunSession]:
    """Reserve, make and finally remove everything around a run.

    Raises:
        CapabilityError: the budget does not fit beside other runs, or the host cannot give what is needed.
        UsageError: the account cannot be used.
    """
    account = server_account(surroundings.run_as)
    process.allow_many()
    facts = gather(node)
    state = paths.state_dir()
    with contextlib.ExitStack() as stack:
        whole = surroundings.cores >= facts.cores
        with interruption.undisturbed():  # what is there shall be in the stack, whenever a signal comes
            reserved = stack.enter_context(reserve(state, run, None if whole else surroundings.cores, surroundings.memory, facts))
            journal = Journal.open(node, state, run)
            stack.callback(journal.end, watcher.note)
        made = None if surroundings.swap is None else swap.make(node, journal, surroundings.swap, str(paths.cache_dir()))
        suffix = run[-4:]
        work = paths.work_tree(node, journal, run, account)
        sockets = Path(paths.socket_root(node, journal))
        most = None if surroundings.swap is None else surroundings.swap.size
        budget = Host(cores=surroundings.cores, memory=surroundings.memory, swap=most)
        runtimes = Runtimes(node, journal, facts, budget, suffix, reserved.cpus, surroundings.guest_memory)
        stack.callback(runtimes.close)
        runtimes.get(surroundings.runtime)  # what the host cannot give is said before anything is deployed
        yield RunSession(
            node, facts, journal, runtimes, account, work, sockets, paths.cache_dir(), surroundings.platform, surroundings, made
        )
