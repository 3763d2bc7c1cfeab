"""What a user may say of a command's run; everything has a default but the command."""

from __future__ import annotations

from pydantic import Field

from pgherd.studies.spread import SpreadRequest


class ExecRequest(SpreadRequest):
    """Options of ``pgherd exec`` as given on the command line or in a scenario. None: pgherd chooses, and says what."""

    command: tuple[str, ...] = Field((), description="the program and its arguments, a word each; no shell reads them")
    value: tuple[str, ...] = Field((), description="a number to read from its output, NAME=REGEX")
    unit: tuple[str, ...] = Field((), description="the unit of a value, NAME=UNIT")
    env: tuple[str, ...] = Field((), description="a variable of its environment, NAME=VALUE; it has PATH, LC_ALL=C and TZ=UTC besides")
    cwd: str | None = Field(None, description="the directory in which it is started; by default that in which pgherd is")
    privileged: bool = Field(False, description="as root: run it as root, not under the servers' account")
    seconds: str | None = Field(None, description="it runs on: end it after this measured period; by default it ends by itself")
    ramp: str | None = Field(None, description="with seconds: ramp-up before, not counted")
    timeout: str | None = Field(None, description="the longest that it may take where it ends by itself")
    repeats: int | None = Field(None, ge=1, description="how often it is run")
    budget: str | None = Field(None, description="time for all trials; reruns of tainted trials fit into it too")
    cores: float | None = Field(None, gt=0, description="cores of this host that the run reserves")
    run_as: str | None = Field(None, description="the account that it runs as (root only)")
    threshold: tuple[str, ...] = Field((), description="change a verdict's threshold, NAME=VALUE")
