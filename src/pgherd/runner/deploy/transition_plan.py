"""Plan of the cheapest way from the running servers to the deployment of a trial. Pure: nothing is executed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, Deployment, Server, Volume
from pgherd.model.trial import State
from pgherd.workloads.user_script import settings_of_contents

Step = Literal["keep", "reload", "restart", "restore", "attach"]
ORDER: tuple[Step, ...] = ("keep", "reload", "restart", "restore", "attach")

ServerKey = tuple[str, str]
"""(container, server)."""


@dataclass(frozen=True)
class RunningServer:
    """Running server as deployed, with its volumes. ``healthy`` is False once it has died."""

    container: Container
    server: Server
    healthy: bool = True
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True)
class Transition:
    """Step for each requested server, servers and containers to remove, and containers to create."""

    steps: Mapping[ServerKey, Step]
    remove_servers: tuple[ServerKey, ...]
    remove_containers: tuple[str, ...]
    make_containers: tuple[str, ...]

    @property
    def starts(self) -> bool:
        """True if any server must be started."""
        return any(step in ("restart", "restore") for step in self.steps.values())

    def summary(self) -> str:
        """Return a summary for the trial's record, such as ``2 restarted, 1 removed``."""
        labels = {"keep": "kept", "reload": "reloaded", "restart": "restarted", "restore": "restored", "attach": "attached"}
        parts = [f"{n} {labels[step]}" for step in ORDER if (n := sum(s == step for s in self.steps.values()))]
        if self.remove_servers:
            parts.append(f"{len(self.remove_servers)} removed")
        return ", ".join(parts) or "nothing to do"


def plan(
    up: Mapping[ServerKey, RunningServer],
    wanted: Deployment,
    state: State,
    how: Callable[[Mapping[str, str], Mapping[str, str]], Literal["keep", "reload", "restart"]],
) -> Transition:
    """Compare the running servers with the requested deployment.

    Args:
        up: the running servers.
        wanted: the requested deployment.
        state: 'fresh' restores every server from its template, 'restarted' restarts it, 'warm' does the least.
        how: function of (old settings, new settings) that returns whether the change needs a reload or a restart.

    A container whose limits or runtime changed is created again, which restarts its servers. Limits never change
    under a running server, because memory stays charged to the cgroup to which it was charged first. A server whose
    volumes changed is restored. A guest that is created again restores all its servers. An external server is
    attached or kept; its state is never changed.
    """
    steps: dict[ServerKey, Step] = {}
    at_least: Step = {"fresh": "restore", "restarted": "restart", "warm": "keep"}[state]  # type: ignore[assignment]
    running_shapes = {key[0]: _shape(server_up.container) for key, server_up in up.items()}
    requested_shapes: dict[str, Container] = {}
    for _, container, server in wanted.servers():
        key = (container.name, server.name)
        requested_shapes[container.name] = _shape(container)
        running = up.get(key)
        if container.runtime == "external":
            unchanged = running is not None and running.healthy and running.server == server and running.container.runtime == "external"
            steps[key] = "keep" if unchanged else "attach"
            continue
        step = at_least
        if (
            running is None
            or not running.healthy
            or _content(running.server) != _content(server)
            or running.volumes != volumes_of(server, wanted)
        ):
            step = "restore"
        else:
            if _shape(running.container) != _shape(container):
                # A guest loses its memory and its disk.
                step = _costlier(step, "restore" if capabilities_of(container.runtime).own_kernel else "restart")
            if running.server.transparent_huge_pages != server.transparent_huge_pages:
                step = _costlier(step, "restart")  # memory in use keeps its page size
            if running.server.sched_batch != server.sched_batch:
                step = _costlier(step, "restart")  # processes inherit the policy when they start
            step = _costlier(step, how(running.server.settings, server.settings))
        steps[key] = step
    restored = {name for (name, _), step in steps.items() if step == "restore"}
    for guest in {name for name in restored if capabilities_of(requested_shapes[name].runtime).own_kernel}:
        steps.update({key: "restore" for key in steps if key[0] == guest})
    # A server of pgherd's ends where an external one takes its name.
    replaced = {key for key, running in up.items() if steps.get(key) == "attach" and running.container.runtime != "external"}
    removed = tuple(sorted(key for key in up if key not in steps or key in replaced))
    changed = {name for name, shape in running_shapes.items() if requested_shapes.get(name) != shape}
    created = tuple(name for name in requested_shapes if name in changed or name not in running_shapes)
    return Transition(steps, removed, tuple(sorted(changed)), created)


def volumes_of(server: Server, deployment: Deployment) -> tuple[Volume, ...]:
    """Return the volumes that hold files of a server."""
    return tuple(volume for volume in deployment.volumes if volume.name in (*server.volumes.values(), *server.tablespaces))


def _costlier(first: Step, second: Step) -> Step:
    return max(first, second, key=ORDER.index)


def _shape(container: Container) -> Container:
    return container.model_copy(update={"servers": ()})


def _content(server: Server) -> Server:
    return server.model_copy(update={"settings": settings_of_contents(server), "transparent_huge_pages": None, "sched_batch": False})
