"""Errors shown to the user, each with its exit code.

A message names the problem, both values if two disagree, and the next step.
"""

from __future__ import annotations


class PgherdError(Exception):
    """Root of all errors that are shown as one message, without a traceback."""

    exit_code = 1


class UsageError(PgherdError):
    """Error in the user's options, scenario or files. Exit code 2."""

    exit_code = 2


class CapabilityError(PgherdError):
    """Request that this host cannot fulfil. The message names the missing requirement. Exit code 3."""

    exit_code = 3


class TrialError(PgherdError):
    """Trial that failed, for example because a server died, a driver failed or the disk is full.

    The runner records it and continues. It ends the run only if no trial succeeds. Exit code 1.
    """


class LostServerError(TrialError):
    """Trial that needs an external server which is lost, while other servers of the run answer. It says nothing about the next trial."""


class RunDirectoryError(UsageError):
    """Run directory that is truncated, not pgherd's, or written by a newer schema. Exit code 2."""
