"""Which shared libraries programs need, so that they run in a guest that has nothing else."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node

_AT_ONCE = 100
_FOUND = re.compile(r"^\t(?:\S.* => )?(/\S.*?) \(0x[0-9a-f]+\)$")
_MISSING = re.compile(r"^\t(\S+) => not found$")
_PROGRAM_INTERPRETER = 3


@dataclass(frozen=True)
class Needs:
    """What one file needs: paths of libraries as the loader finds them (the loader among them), and names that it does not find."""

    found: tuple[str, ...]
    missing: tuple[str, ...] = ()


def needs(node: Node, files: Sequence[str]) -> dict[str, Needs]:
    """What each program or library needs, itself and through others, as ldd(1) says; nothing for one that is static.

    Raises:
        CapabilityError: ldd is missing.
    """
    told: dict[str, Needs] = {}
    for first in range(0, len(files), _AT_ONCE):
        some = files[first : first + _AT_ONCE]
        try:
            said = node.run(Command(["ldd", *some]), timeout=120).out
        except OSError as error:
            raise CapabilityError(f"ldd cannot be run ({error}), which tells the libraries that a guest's programs need") from None
        told |= parse(said, some)
    return told


def parse(text: str, files: Sequence[str]) -> dict[str, Needs]:
    """What ldd said of these files: with one file it names it in no heading, with several it does."""
    found: dict[str, list[str]] = {name: [] for name in files}
    missing: dict[str, list[str]] = {name: [] for name in files}
    current = files[0] if len(files) == 1 else ""
    for line in text.splitlines():
        if not line.startswith("\t"):
            current = line.removesuffix(":") if line.removesuffix(":") in found else current
        elif current and (match := _FOUND.match(line)):
            found[current].append(match[1])
        elif current and (match := _MISSING.match(line)):
            missing[current].append(match[1])
    return {name: Needs(tuple(found[name]), tuple(missing[name])) for name in files}


def libraries(node: Node, programs: Sequence[str], modules: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(paths of all libraries that the programs and loadable modules need, modules that can be used).

    A module of which a library is missing on this machine is left out: it could not be loaded here either.

    Raises:
        CapabilityError: a program's library is missing.
    """
    told = needs(node, [*programs, *modules])
    for program in programs:
        if told[program].missing:
            raise CapabilityError(f"{program} needs {', '.join(told[program].missing)}, which this machine does not have; mend its package")
    usable = [module for module in modules if not told[module].missing]
    paths = dict.fromkeys(path for name in (*programs, *usable) for path in told[name].found)
    return list(paths), usable


def is_static(elf: bytes) -> bool:
    """Whether a 64-bit ELF program names no program interpreter (elf(5): PT_INTERP), and so runs without shared libraries."""
    if len(elf) < 64 or elf[:5] != b"\x7fELF\x02":
        return False
    begin, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    kinds = [struct.unpack_from("<I", elf, begin + number * size)[0] for number in range(count)]
    return _PROGRAM_INTERPRETER not in kinds
