"""One root for everything that pgherd tells its user, each with the exit code it ends in.

A message says what was wrong, both values where two disagree, and what to do next.
"""

from __future__ import annotations


class PgherdError(Exception):
    """Root of all errors shown to the user as one message, never as a traceback."""

    exit_code = 1


class UsageError(PgherdError):
    """The user's options, scenario or files are wrong. Exit code 2."""

    exit_code = 2


class CapabilityError(PgherdError):
    """This host cannot do what was asked; the message says what would make it able. Exit code 3."""

    exit_code = 3


class TrialError(PgherdError):
    """A trial could not be finished (a server died, a driver failed, the disk filled up).

    The runner records it and goes on; it ends a run only when no trial can be finished. Exit code 1.
    """


class RunDirectoryError(UsageError):
    """A run directory is truncated, foreign, or written by a newer schema. Exit code 2."""
