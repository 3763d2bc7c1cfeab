"""Every option that a text in the source names exists: as an option of a command of pgherd, or of another program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pgherd.cli.main import cli

SOURCE = Path(__file__).parents[2] / "src" / "pgherd"
ELSEWHERE = {
    "--all": "wipefs",
    "--bind": "iperf3",
    "--cgroupns": "docker run",
    "--pids-limit": "docker run",
    "--describe-config": "postgres",
    "--enable": "pg_checksums",
    "--format": "stat",
    "--max-tries": "pgbench",
    "--mount": "fuser",
    "--net": "nsenter",
    "--nthreads": "dask worker",
    "--one-off": "iperf3",
    "--privileged": "docker run",
    "--progress-timestamp": "pgbench",
    "--scope": "systemd-run",
    "--system": "useradd",
    "--template": "createdb",
    "--uid": "useradd",
    "--unset": "env",
    "--user": "systemd-run",
    "--waldir": "initdb",
}
"""Option that texts name → the other program that has it."""
_OPTION = re.compile(r"(?<![\w-])--(?:no-)?[a-z][a-z0-9-]*[a-z0-9](?![\w-]|\*)")


def options(command: click.Command) -> Iterator[str]:
    """Yield the options of a command and of all commands below it."""
    context = click.Context(command)
    for parameter in command.get_params(context):
        yield from (name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--"))
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)
        assert below is not None
        yield from options(below)


def constants(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string constant. A single word is an argument of a program, and no text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def unknown(text: str, known: set[str]) -> list[tuple[int, str]]:
    return [(line, name) for line, value in constants(text) for name in _OPTION.findall(value) if name not in known]


@pytest.fixture(scope="module")
def option_names() -> set[str]:
    return set(options(cli))


def test_every_option_in_a_text_exists(option_names):
    result = [
        f"{path.relative_to(SOURCE)}:{line} {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name in unknown(path.read_text(encoding="utf-8"), option_names | set(ELSEWHERE))
    ]
    assert not result, "\n".join(result)


def test_every_option_of_another_program_is_named_and_is_none_of_pgherd(option_names):
    named = {name for path in SOURCE.rglob("*.py") for _, name in unknown(path.read_text(encoding="utf-8"), option_names - set(ELSEWHERE))}
    assert named == set(ELSEWHERE) and not option_names & set(ELSEWHERE)


def test_an_unknown_option_is_found():
    text = '''"""Docstring with --one."""\nargv = ["tool", "--no-text"]\nerror = f"{argv}: use --two-three=N or --four"\n'''
    assert unknown(text, {"--one"}) == [(3, "--two-three"), (3, "--four")]
