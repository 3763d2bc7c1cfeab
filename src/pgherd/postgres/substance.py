"""Whether two hosts' PostgreSQL installations are the same to the byte, so that a data directory made by one is fit for the other."""

from __future__ import annotations

import hashlib
import os
import re

from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation, libraries, library_dirs

_LOCALES = ["find", "/usr/lib/locale", "-type", "f", "(", "-name", "locale-archive", "-o", "-name", "LC_COLLATE", ")"]
"""The C library's orders of words: an index in the order of one of them is corrupt under another."""


def decisive(node: Node, installation: Installation) -> list[str]:
    """The files that ``substance`` is of; empty where not all of them are known."""
    program = installation.tool("postgres")
    loaded = [path for _, path in libraries(node, program)]
    homes = [place for place in library_dirs(node, installation) if node.exists(os.path.join(place, "plpgsql.so"))]
    if not loaded or not homes:
        return []
    extensions = [os.path.join(homes[0], name) for name in node.listdir(homes[0]) if name.endswith(".so")]
    locales = node.run(Command(_LOCALES)).out.splitlines()  # none on a system without any
    return [program, *loaded, *extensions, *locales]


def substance(node: Node, installation: Installation) -> str:
    """A hash over the machine's architecture and the contents of what decides how data lie in a data directory, and what can read them:
    the server's program, the libraries that it loads (the C library and ICU with the order of their words among them), its extensions'
    libraries, and the locales. The extensions' SQL and the dictionaries of text search are not in it. Where the files lie does not
    matter. '' where not all of that can be read: then nothing is known.
    """
    files = decisive(node, installation)
    machine = node.run(Command(["uname", "-m"]))
    hashed = node.run(Command(["sha256sum", "--", *files]), timeout=300) if files else None
    lines = re.findall(r"^\\?([0-9a-f]{64}) [ *](.*)$", hashed.out, flags=re.MULTILINE) if hashed else []
    if hashed is None or machine.code or hashed.code or len(lines) != len(files):
        return ""
    named = sorted(f"{digest} {path if _LOCALES[1] in path else os.path.basename(path)}" for digest, path in lines)
    return hashlib.sha256("\n".join([machine.out.strip(), installation.build, *named]).encode()).hexdigest()
