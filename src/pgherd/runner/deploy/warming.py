"""Servers that have started are warmed side by side: each reads within its own container's CPU limit, and so most of the time waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait

from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.transition import ServerKey

_LOOK_SECONDS = 0.5


def warm_all(instances: Mapping[ServerKey, Instance], warm: Callable[[ServerKey], None], insist: Callable[[], None]) -> None:
    """Call ``warm`` for each server in a thread of its own, and raise what the first of them raised once all have ended.

    Ctrl-C, or whatever ``insist`` raises (it is called now and then in this thread), shuts the servers down at once: whoever waits for
    one that reads for minutes is told by it that the connection is lost.
    """
    with ThreadPoolExecutor(max_workers=len(instances)) as pool:
        try:
            warmed = [pool.submit(warm, key) for key in instances]
            while wait(warmed, _LOOK_SECONDS).not_done:
                insist()
        except BaseException:
            for instance in instances.values():
                with contextlib.suppress(OSError):  # a guest that does not answer any more is ended with all that is in it
                    instance.signal_stop("immediate")
            raise
    for one in warmed:
        one.result()
