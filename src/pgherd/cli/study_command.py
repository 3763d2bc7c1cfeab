"""Verbs of studies: the command line of each is made from the declared options of its request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, runs_option, whole_numbers, yes_option
from pgherd.study.option import SECTIONS, Declared, declared
from pgherd.study.study import Study

RUN_SECTION = "Run and output"
SHOWN_ALWAYS = ("help", "help_all")
EXAMPLES_SHOWN = 3
"""Number of examples in ``--help``. ``--help-all`` shows all."""


class StudyOption(click.Option):
    """An option with the section of ``--help-all`` under which it is listed."""

    def __init__(self, *arguments: Any, section: str = RUN_SECTION, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.section = section


class StudyCommand(click.Command):
    """The verb of a study: ``--help`` lists its common options, ``--help-all`` all of them in sections."""

    def __init__(self, study: Study) -> None:
        """Make the command line of a study."""
        options = list(declared(study.request_model))
        self.study = study
        self.positional = next((one for one in options if one.option.positional), None)
        shown = {name.replace("-", "_") for name in study.common} | {*SHOWN_ALWAYS}
        super().__init__(
            study.name,
            callback=self._run,
            params=[*map(parameter, options), *_run_options()],
            help=study.help,
            short_help=study.help,
            context_settings={"allow_interspersed_args": False} if _takes_a_command(self.positional) else {},
        )
        self.params.append(
            StudyOption(
                ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="Show all options and defaults."
            )
        )
        self._shown = shown

    def _run(self, *, runs: Path, dry_run: bool, write_scenario: Path | None, no_report: bool, as_json: bool, **given: Any) -> int:
        """Run the study with the ``given`` values of its options, and return the exit code."""
        from pgherd.cli.run_study import run_study

        values = {name: value for name, value in given.items() if value not in (None, ())}
        if self.positional is not None and (read := self.study.hook("prepare", "read_arguments")) is not None:
            words = values.pop(self.positional.name, ())
            values |= {self.positional.name: read(words)} if words else {}
        return run_study(
            self.study.name,
            values,
            runs=runs,
            dry_run=dry_run,
            scenario=write_scenario,
            report=not no_report,
            as_json=as_json,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. An option of other studies that this one rejects gives the reason."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            left_out = getattr(self.study.request_model, "LEFT_OUT", {})
            reason = left_out.get(error.option_name.removeprefix("--").replace("-", "_"))
            if reason is None:
                raise
            raise click.UsageError(f"No such option '{error.option_name}': {reason}.", ctx) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the study's line and its examples."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.study.help)
        if examples := self.study.examples[: None if ctx.meta.get(_ALL) else EXAMPLES_SHOWN]:
            formatter.write_paragraph()
            column = max((len(command) for command, comment in examples if comment), default=0)
            for command, comment in examples:
                formatter.write(f"  {command.ljust(column)}  {comment}".rstrip() + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, or all of them in sections."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        if not ctx.meta.get(_ALL):
            shown = [one for one in options if one.name in self._shown or "--help" in one.opts]
            order = [name.replace("-", "_") for name in self.study.common]
            shown.sort(key=lambda one: order.index(one.name) if one.name in order else len(order))
            with formatter.section("Options"):
                formatter.write_dl(_on_one_line(_records(ctx, shown), formatter.width), col_max=_MAX_COLUMN)
            return
        for section in (*SECTIONS, RUN_SECTION):
            if records := _records(ctx, [one for one in options if getattr(one, "section", RUN_SECTION) == section]):
                with formatter.section(section):
                    formatter.write_dl(records)


def _records(ctx: click.Context, options: Sequence[click.Option]) -> list[tuple[str, str]]:
    return [record for one in options if (record := one.get_help_record(ctx)) is not None]


_MAX_COLUMN = 30
"""Width of the first column in help texts, as in click: longer names have a separate line."""


def _on_one_line(records: Sequence[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Return the records without those defaults that would need a second line. ``--help-all`` has all."""
    column = max(len(names) for names, _ in records if len(names) <= _MAX_COLUMN)
    room = width - column - 4  # two spaces before the names, and two after
    return [(names, text if len(text) <= room else text.partition("  [default")[0]) for names, text in records]


_ALL = "pgherd.cli.help_all"


def _help_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _takes_a_command(positional: Declared | None) -> bool:
    """Return True if the words after the options are a command, which may have options too."""
    return positional is not None and positional.option.positional.startswith("COMMAND")


def parameter(one: Declared) -> click.Parameter:
    """Return the parameter of click for a declared option."""
    if one.option.positional:
        kind: Any = click.UNPROCESSED if _takes_a_command(one) else click.Path(dir_okay=False, path_type=Path)
        return click.Argument([one.name], nargs=-1, type=kind, metavar=one.option.positional)
    text = one.option.help + (f"  [default: {one.default_text}]" if one.default_text else "")
    more: dict[str, Any] = {"section": one.option.section, "help": text, "default": None}
    names = [one.flag, one.name]
    match one.kind:
        case "flag":
            return StudyOption(names, is_flag=True, **more)
        case "switch":
            return StudyOption([f"{one.flag}/--no-{one.flag.removeprefix('--')}", one.name], **more)
        case "choice":
            more |= {"type": click.Choice(one.choices), "metavar": one.option.metavar or None}
        case "whole number" | "number":
            more |= {"type": one.element, "metavar": one.option.metavar or None}
        case "repeated":
            more |= {"multiple": True, "metavar": one.option.metavar}
        case "list":
            more |= {"callback": whole_numbers if one.element is int else _words, "metavar": one.option.metavar}
        case "text":
            more |= {"metavar": one.option.metavar or "TEXT"}
    return StudyOption(names, **more)


def _words(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Split a list such as ``a,b``."""
    if value is None:
        return None
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    if not words:
        raise click.BadParameter(f"'{value}' is empty; give words such as a,b")
    return words


def _run_options() -> list[click.Parameter]:
    """Options of every verb that executes a run."""

    @click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
    @click.option(
        "--write-scenario",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Save these options as a scenario file and exit.",
    )
    @yes_option
    @click.option("--no-report", is_flag=True, help="Do not write the HTML report.")
    @json_option
    @runs_option
    @metrics_options
    def run() -> None:
        """Carry the options."""

    function: Callable[..., Any] = run
    return list(reversed(function.__click_params__))  # type: ignore[attr-defined]
