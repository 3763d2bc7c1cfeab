"""What samplers may know of a server that is up."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.metrics.balloon import THERE
from pgherd.metrics.sampler import ServerView
from pgherd.model.errors import PgherdError
from pgherd.node.protocol import Node
from pgherd.postgres import balloon_build
from pgherd.postgres.instance import Instance


def server_view(node: Node, name: str, instance: Instance, settings: Mapping[str, str], cache: str) -> ServerView:
    """The view of a server of ours; ``name`` is ``container/server``, ``cache`` where on ``node``, this host, a pg_balloon that pgherd
    built lies.

    A server that loads pg_balloon is asked whether it can tell of it. Where its functions are missing they are made in the maintenance
    database, which is as much ours as the server.
    """
    conninfo = instance.conninfo("postgres")
    pid = instance.pid if instance.access is None else 0  # a guest's pids mean nothing here
    return ServerView(name, conninfo, instance.installation.major, pid, balloon=_has_balloon(node, instance, settings, cache))


def _has_balloon(node: Node, instance: Instance, settings: Mapping[str, str], cache: str) -> bool:
    import psycopg

    loaded = ",".join(value for key, value in settings.items() if key.endswith("_preload_libraries"))
    if balloon_build.NAME not in loaded:
        return False
    try:
        if not instance.sql(THERE)[0][0]:
            library = balloon_build.find_balloon(node, instance.installation, cache)
            if library is not None:
                balloon_build.create_functions(node, instance.installation, library, instance.conninfo("postgres"))
        return bool(instance.sql(THERE)[0][0])
    except (psycopg.Error, PgherdError, OSError):  # a server that has just died is found out elsewhere
        return False
    finally:
        instance.disconnect(["postgres"])
