"""Complete options of an exec run, its load and its trials."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import Field, field_validator

from pgherd.model.analysis import Proposal, Thresholds
from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.text import HIDDEN
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.model.units import Duration
from pgherd.study import trial_schedule
from pgherd.study.option import option, redefined
from pgherd.study.shared_options import MeasurementRequest, StudyOptions
from pgherd.study.trial_schedule import Point, SchedulePlan

TIMEOUT = 600.0
"""Default maximum duration of a command in seconds."""


class ExtractedValue(Model):
    """A number in the output of the command: the last match of ``pattern``, or its group 1 if it has one."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")
    pattern: str
    unit: str = ""

    @field_validator("pattern")
    @classmethod
    def _is_one(cls, pattern: str) -> str:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if compiled.groups > 1:
            raise ValueError(f"it has {compiled.groups} groups, but at most one is allowed; write the others as (?:…)")
        return pattern


class ExecOptions(StudyOptions):
    """Complete options of an exec run.

    If ``seconds`` is None, the command ends by itself within ``timeout`` seconds. Otherwise pgherd stops it after a warm-up of ``ramp``
    seconds, which is not counted, and ``seconds`` of measurement. All ``hosts`` run the command at the same time. Times are in seconds.
    """

    command: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict, description="variables of the command. The values are hidden")
    cwd: str | None = None
    as_root: bool = False
    extract: tuple[ExtractedValue, ...] = ()
    hosts: tuple[str, ...] = Field(("local",), min_length=1)
    host_cores: float = Field(gt=0)
    duration: float | None = Field(None, gt=0)
    warmup: float = Field(0.0, ge=0)
    timeout: float = Field(TIMEOUT, gt=0)
    repeats: int = Field(5, ge=1)
    fixed_repeats: bool = Field(False, description="the user gave the number of runs: only reruns of tainted ones are added")
    time_budget: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    thresholds: Thresholds = Field(default=Thresholds(), description="thresholds of the checks of trials")

    @field_validator("env")
    @classmethod
    def _hidden(cls, env: dict[str, str]) -> dict[str, str]:
        return dict.fromkeys(env, HIDDEN)

    def deployment(self) -> Deployment:
        """Return the deployment: the hosts without a server."""
        return Deployment(hosts=tuple(Host(name=name, cores=self.host_cores) for name in self.hosts))

    def load(self) -> Load:
        """Return the load: the command, which is the same on each host."""
        options = {"argv": json.dumps(self.command)}
        options |= {f"env:{name}": value for name, value in self.env.items()}
        options |= {} if self.cwd is None else {"cwd": self.cwd}
        options |= {"privileged": "1"} if self.as_root else {}
        options |= {f"value:{value.name}": value.pattern for value in self.extract}
        return Load(driver="command", options=options)


class ExecRequest(MeasurementRequest):
    """Options of ``pgherd exec`` as given on the command line or in a scenario. None: pgherd chooses."""

    command: tuple[str, ...] = option((), "Command and its arguments; no shell reads them.", positional="COMMAND…")
    extract: tuple[str, ...] = option((), "Extract a number from the output (repeatable).", metavar="NAME=REGEX", repeated=True)
    unit: tuple[str, ...] = option((), "Unit of an extracted number (repeatable).", metavar="NAME=UNIT", repeated=True)
    env: tuple[str, ...] = option(
        (), "Environment variable; without a value, that of pgherd (repeatable).", metavar="NAME[=VALUE]", repeated=True
    )
    cwd: str | None = option(None, "Working directory.", metavar="DIR", computed="the current one, or /")
    timeout: Duration | None = option(None, "Maximum duration of a command that ends by itself.", metavar="TIME", computed="10m")
    as_root: bool = option(False, "Run the command as root.")
    repeats: int | None = redefined(MeasurementRequest, "repeats", None, help="Runs of the command, not more.", computed="5 or more")
    min_repeats: int | None = redefined(MeasurementRequest, "min_repeats", None, help="Runs of the command, or more.", computed="5")
    duration: Duration | None = redefined(MeasurementRequest, "duration", None, computed="until the command ends")
    warmup: Duration | None = redefined(MeasurementRequest, "warmup", None, computed="none")


def propose(options: ExecOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: ExecOptions) -> SchedulePlan:
    """Return one point with its repeats.

    A command that ends by itself gets more repeats while its duration is uncertain and the time budget allows them.
    """

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"hosts": len(options.hosts)}]
    blocks = [[build(points[0], repeat, "planned")] for repeat in range(options.repeats)]
    return SchedulePlan(blocks, points, build, lambda point: options.repeats, adaptive=options.duration is None)


def _trial(options: ExecOptions, point: Point, repeat: int, reason: str) -> Trial:
    loads = dict.fromkeys(options.hosts, options.load())
    if options.duration is None:
        phase = Phase(name="command", warmup=0, seconds=options.timeout, loads=loads, until="drivers")
    else:
        phase = Phase(name="command", warmup=options.warmup, seconds=options.duration, loads=loads)
    intents: tuple[ValidityCheck, ...] = ("exit-code", "values-extracted") if options.extract else ("exit-code",)
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=options.deployment(), phases=(phase,), validity_checks=intents)
