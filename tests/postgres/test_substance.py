"""What two installations must have in common before a data directory of one is used by the other."""

from dataclasses import replace

import pytest

from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.postgres import installations
from pgherd.postgres import substance as module
from pgherd.postgres.installations import Installation
from pgherd.postgres.substance import substance


class Machine(LocalNode):
    """This one, of another architecture if that is wanted, with locales of its own."""

    def __init__(self, locales, architecture=None):
        super().__init__()
        self.locales, self.architecture = locales, architecture

    def run(self, command, timeout=60.0):
        if command.argv[0] == "uname" and self.architecture is not None:
            return Completed(0, f"{self.architecture}\n", "")
        if command.argv[0] == "find":
            return Completed(0, "".join(f"{path}\n" for path in self.locales), "")
        return super().run(command, timeout)


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A build in a directory of its own: program, extensions, a library that the program loads, a locale."""

    def make(name, **changes):
        contents = {"bin/postgres": "program", "lib/plpgsql.so": "extension", "libc.so.6": "library", "locale-archive": "order", **changes}
        home = tmp_path / name
        for path, text in contents.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                (home / path).write_text(text)
        return home, Installation(str(home / "bin"), "18.6", 18, "system", "18.6 (here)")

    monkeypatch.setattr(module, "libraries", lambda node, program: [("libc.so.6", program.replace("bin/postgres", "libc.so.6"))])
    return make


def of(made, **machine):
    home, installation = made
    return substance(Machine([*home.glob("locale-*")], **machine), installation)


def test_where_a_build_lies_does_not_matter(build):
    here, there = build("here"), build("there")
    locales = [here[0] / "locale-archive"]  # of the system, and so in one place
    assert substance(Machine(locales), here[1]) == substance(Machine(locales), there[1]) != ""


@pytest.mark.parametrize(
    "changes",
    [{"bin/postgres": "another"}, {"lib/plpgsql.so": "another"}, {"lib/more.so": "x"}, {"libc.so.6": "another"}, {"locale-archive": "x"}],
)
def test_whatever_decides_what_lies_in_a_data_directory_counts(build, changes):
    made = build("here")
    before = of(made)
    for path, text in changes.items():
        (made[0] / path).write_text(text)
    assert before != of(made) != ""


def test_the_architecture_and_the_build_count(build):
    home, installation = build("here")
    assert of((home, installation)) == of((home, installation))
    assert of((home, installation), architecture="aarch64") != of((home, installation), architecture="x86_64")
    assert of((home, replace(installation, build="18.6 (there)"))) != of((home, installation))


@pytest.mark.parametrize("gone", ["bin/postgres", "lib/plpgsql.so", "libc.so.6"])
def test_what_cannot_be_read_is_not_known(build, gone):
    home, installation = build("here")
    (home / gone).unlink()
    assert of((home, installation)) == ""


def test_without_ldd_nothing_is_known(build, monkeypatch):
    made = build("here")
    monkeypatch.setattr(module, "libraries", lambda node, program: [])
    assert of(made) == ""


def test_a_real_installation_has_one(node, installation):
    found = substance(node, installation)
    assert len(found) == 64 and found == substance(node, installation)
    others = {one.bin: substance(node, one) for one in installations.find_all(node) if one.version != installation.version}
    assert found not in others.values()
