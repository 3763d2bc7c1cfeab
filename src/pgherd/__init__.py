"""pgherd measures how PostgreSQL scales and how densely it can be consolidated.

``open_run`` reads a run in a notebook or a script. All other modules are internal.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    import os

    from pgherd.store.open_run import Run

__all__ = ["__version__", "open_run"]
__version__ = "0.1.0"


def open_run(run: str | os.PathLike[str], runs_dir: str | os.PathLike[str] = "pgherd-runs") -> Run:
    """Open a run: its answer, findings, tables, trials and samples (see ``pgherd.store.open_run.Run``).

    Args:
        run: path (a text with a slash) or name of a run's directory, an unambiguous part of its name, or 'last'.
        runs_dir: directory that contains the runs, for a name.

    Raises:
        pgherd.model.errors.RunDirectoryError: no run matches, or more than one.
    """
    from pathlib import Path

    from pgherd.store import open_run

    return open_run.open_run(run if isinstance(run, str) else Path(run), Path(runs_dir))
