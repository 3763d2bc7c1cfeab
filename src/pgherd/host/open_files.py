"""How many files this process may have open at once.

Sampling keeps a dozen open for each database, and the usual soft limit of 1,024 is met by less than a hundred of them. A process may raise
its own soft limit up to the hard one (setrlimit(2)); that is gone with the process, so that there is nothing to undo. What it starts has
the former one (``node.process.wrap``): servers and clients run under the limit that they have on this host without pgherd.
"""

from __future__ import annotations

import resource

ENOUGH = 65536
"""Open files of some thousands of databases; an unlimited number would make programs slow that close all they may have inherited."""


def allow_many() -> int:
    """Raise this process's soft limit as far as it may be and makes sense; returns what holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
