"""The write-ahead log apart from the data: a cluster's ``pg_wal`` in a directory elsewhere, by symbolic link.

That is how initdb's --waldir does it; a cluster that exists is changed in the same way while its server is down.
"""

from __future__ import annotations

import os

from pgherd.model.errors import TrialError
from pgherd.node.protocol import Command, Node


def move(node: Node, data_dir: str, directory: str) -> None:
    """Move a stopped cluster's WAL to ``directory``/pg_wal and leave a link to it. Owners and modes stay as they are.

    ``directory`` must be one that the server's account can enter. A golden copy holds few segments, so little is copied.

    Raises:
        TrialError: it cannot be moved, for instance because the disk is full; the cluster is of no use then.
    """
    source, target = os.path.join(data_dir, "pg_wal"), os.path.join(directory, "pg_wal")
    for argv in (["mv", "-T", "--", source, target], ["ln", "-s", "--", target, source]):
        done = node.run(Command(argv), timeout=600)
        if done.code != 0:
            raise TrialError(f"the WAL of {data_dir} cannot be moved to {directory}: {done.err.strip()}")
