"""The cheapest way from what is up to what a trial wants. Pure: says what to do, does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pgherd.model.deployment import Container, Deployment, Server, Volume
from pgherd.model.trial import State

Step = Literal["keep", "reload", "restart", "restore", "attach"]
ORDER: tuple[Step, ...] = ("keep", "reload", "restart", "restore", "attach")

ServerKey = tuple[str, str]
"""(container, server)."""


@dataclass(frozen=True)
class Up:
    """One server that is up, as it was deployed, with the volumes that it lies on; ``healthy`` is False once it has died."""

    container: Container
    server: Server
    healthy: bool = True
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True)
class Transition:
    """What to do with each server wanted, which servers and containers to remove, and which containers to make anew."""

    steps: Mapping[ServerKey, Step]
    remove_servers: tuple[ServerKey, ...]
    remove_containers: tuple[str, ...]
    make_containers: tuple[str, ...]

    @property
    def starts(self) -> bool:
        """Whether any server of ours is to be started."""
        return any(step in ("restart", "restore") for step in self.steps.values())

    def summary(self) -> str:
        """``8 kept``, ``2 restarted, 1 removed``: for the trial's record."""
        words = {"keep": "kept", "reload": "reloaded", "restart": "restarted", "restore": "restored", "attach": "attached"}
        parts = [f"{n} {words[step]}" for step in ORDER if (n := sum(s == step for s in self.steps.values()))]
        if self.remove_servers:
            parts.append(f"{len(self.remove_servers)} removed")
        return ", ".join(parts) or "nothing to do"


def plan(
    up: Mapping[ServerKey, Up],
    wanted: Deployment,
    state: State,
    how: Callable[[Mapping[str, str], Mapping[str, str]], Literal["keep", "reload", "restart"]],
) -> Transition:
    """Compare what is up with what is wanted.

    ``state`` 'fresh' restores every server from its golden copy, 'restarted' restarts it, 'warm' does the least.
    ``how(old settings, new settings)`` says whether a change of settings needs a reload or a restart. A container
    whose limits or runtime changed is made anew, which restarts its servers; memory already charged stays with the
    group it was charged to, so limits are never changed under a running server. A server whose volumes are others now is
    restored, and so is one in a guest that is made anew, together with what else is in the guest. Somebody else's server is attached,
    or kept if it is: no state is brought about on it.
    """
    steps: dict[ServerKey, Step] = {}
    at_least: Step = {"fresh": "restore", "restarted": "restart", "warm": "keep"}[state]  # type: ignore[assignment]
    shapes_up = {key[0]: _shape(one.container) for key, one in up.items()}
    shapes_wanted: dict[str, Container] = {}
    for _, container, server in wanted.servers():
        key = (container.name, server.name)
        shapes_wanted[container.name] = _shape(container)
        there = up.get(key)
        if container.runtime == "external":
            same = there is not None and there.healthy and there.server == server and there.container.runtime == "external"
            steps[key] = "keep" if same else "attach"
            continue
        step = at_least
        if there is None or not there.healthy or _content(there.server) != _content(server) or there.volumes != volumes_of(server, wanted):
            step = "restore"
        else:
            if _shape(there.container) != _shape(container):
                step = _most(step, "restore" if container.runtime == "vm" else "restart")  # a guest's memory and disk go with it
            if there.server.transparent_huge_pages != server.transparent_huge_pages:
                step = _most(step, "restart")  # memory that is in use stays on the pages that it is on
            step = _most(step, how(there.server.settings, server.settings))
        steps[key] = step
    for guest in {name for (name, _), step in steps.items() if step == "restore" and shapes_wanted[name].runtime == "vm"}:
        steps.update({key: "restore" for key in steps if key[0] == guest})
    gone = tuple(sorted(key for key in up if key not in steps))
    changed = {name for name, shape in shapes_up.items() if shapes_wanted.get(name) != shape}
    make = tuple(name for name in shapes_wanted if name in changed or name not in shapes_up)
    return Transition(steps, gone, tuple(sorted(changed)), make)


def volumes_of(server: Server, deployment: Deployment) -> tuple[Volume, ...]:
    """The volumes that a server lies on."""
    return tuple(volume for volume in deployment.volumes if volume.name in (*server.volumes.values(), *server.tablespaces))


def _most(one: Step, other: Step) -> Step:
    return max(one, other, key=ORDER.index)


def _shape(container: Container) -> Container:
    return container.model_copy(update={"servers": ()})


def _content(server: Server) -> Server:
    return server.model_copy(update={"settings": {}, "transparent_huge_pages": None})
