"""PostgreSQL with its assertions checked: Debian's sources of the system's own major, 17 or 18, built once into the environment's cache.

No package has such a build. ``apt-get source`` needs source lists, which the machine's own package lists are turned into, in a directory
beside; nothing is installed and no list of the machine's is changed. It takes about three minutes of both cores of a small machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pgherd.node.local import LocalNode
from pgherd.postgres import installations

PARTS = ("", "contrib/amcheck", "contrib/pg_buffercache", "contrib/pg_prewarm")
"""What is built: PostgreSQL itself, and what looks for damage."""
SUITES = {17: ("trixie",), 18: ("forky", "sid")}
"""Debian's releases with the sources of majors that may not be the system's. None has those of 16."""


class NotToBeHad(Exception):
    """Why there is none here."""


def bin_of(node: LocalNode, major: int | None = None) -> str:
    """The bin directory of a major (None: the system's), built now if it has not been; raises NotToBeHad with the reason."""
    name, suites = str(major), SUITES.get(major or 0, ())
    if major is None:
        system = [item for item in installations.find_all(node) if item.kind == "system"]
        if not system:
            raise NotToBeHad("there is no system PostgreSQL whose sources could be asked for")
        major, name = system[0].major, system[0].version
    home = Path(sys.prefix) / f"cache/postgres/asserting-{name}"
    if not home.exists():
        for tool in ("apt-get", "make", "gcc", *(("bison", "flex", "perl") if major >= 17 else ())):
            if shutil.which(tool) is None:
                raise NotToBeHad(f"{tool} is missing, which it is built with")
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotToBeHad(f"{home.parent} cannot be made: {error.strerror}") from None
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            _build(_source(major, suites, Path(scratch)), home)
    return str(home / "bin")


def source_list(text: str, suite: str | None = None) -> str:
    """A list of package sources (either form that apt knows) turned into one of the sources of its packages, or of another release's."""
    text = re.sub(r"^(Types:).*$", r"\1 deb-src", re.sub(r"^deb(?=\s)", "deb-src", text, flags=re.M), flags=re.M)
    if suite is None:
        return text
    text = re.sub(r"^(Suites:).*$", rf"\1 {suite}", text, flags=re.M)
    return re.sub(r"^(deb-src\s+(?:\[.*?\]\s+)?\S+\s+)\S+", rf"\g<1>{suite}", text, flags=re.M)


def _source(major: int, suites: Sequence[str | None], scratch: Path) -> Path:
    lists = scratch / "lists.d"
    for directory in (lists, scratch / "state/partial", scratch / "cache/archives/partial"):
        directory.mkdir(parents=True)
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        if file.suffix in (".list", ".sources") and file.is_file() and "debian" in (text := file.read_text()):
            for number, suite in enumerate(suites or (None,)):
                (lists / f"{number}-{file.name}").write_text(source_list(text, suite))
    own = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={lists}", "-o", f"Dir::State::lists={scratch}/state"]
    own += ["-o", f"Dir::Cache={scratch}/cache", "-o", "APT::Sandbox::User=root", "-qq"]
    subprocess.run(["apt-get", *own, "update"], capture_output=True, stdin=subprocess.DEVNULL, timeout=300)  # what it came to is seen below
    finished = subprocess.run(["apt-cache", *own, "showsrc", "--only-source", f"postgresql-{major}"], capture_output=True, text=True)
    message = "it is in no list of packages"
    for version in re.findall(r"^Version: (\S+)$", finished.stdout, re.M):  # a mirror can be behind its lists: an older one will do
        argv = ["apt-get", *own, "source", "--download-only", f"postgresql-{major}={version}"]
        got = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        if got.returncode == 0:
            break
        message = (got.stderr.strip() or "no reason given").splitlines()[-1]
    paths = [file for file in scratch.glob("*.orig.tar.*") if file.suffix != ".asc"]
    if len(paths) != 1:
        raise NotToBeHad(f"apt-get has no sources of postgresql-{major}: {message}")
    (scratch / "tree").mkdir()
    _must(["tar", "-xf", str(paths[0]), "-C", str(scratch / "tree"), "--strip-components=1", "--no-same-owner"], scratch)
    return scratch / "tree"


def _build(tree: Path, home: Path) -> None:
    """What cannot be had everywhere is left out; the files are put into ``home`` at the end, whole."""
    without = ["--without-readline", "--without-icu", "--without-zlib"]
    _must(["./configure", f"--prefix={home}", "--enable-cassert", *without, "CFLAGS=-O1 -g0"], tree)
    target = tree.parent / "made"
    for part in PARTS:
        _must(["make", "-s", f"-j{os.cpu_count() or 1}", "-C", str(tree / part), "all"], tree)
        _must(["make", "-s", "-C", str(tree / part), f"DESTDIR={target}", "install"], tree)
    os.rename(f"{target}{home}", home)


def _must(argv: list[str], directory: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    finished = subprocess.run(argv, cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, timeout=1800)
    if finished.returncode != 0:
        raise NotToBeHad(f"{' '.join(argv[:2])} failed: {' / '.join(finished.stderr.strip().splitlines()[-3:])}")
