"""Which fio this host has, and what is said without one that can be used."""

from __future__ import annotations

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.prepare.fio import fio_version


class Node(LocalNode):
    """A host whose fio answers as given. None: there is no such program."""

    def __init__(self, answer: Completed | None) -> None:
        super().__init__()
        self.answer = answer

    def run(self, command, timeout=60.0):
        if self.answer is None:
            raise FileNotFoundError(2, "No such file or directory", command.argv[0])
        return self.answer


def test_the_version_is_that_of_the_program():
    assert fio_version(Node(Completed(0, "fio-3.33\n", ""))) == "3.33"


@pytest.mark.parametrize("answer", [None, *(Completed(code, "", "sh: 1: exec: fio: not found") for code in (126, 127))])
def test_a_missing_fio_is_named_with_its_package(answer):
    with pytest.raises(CapabilityError, match=r"fio is not installed.*install the package fio \(apt-get install fio"):
        fio_version(Node(answer))


@pytest.mark.parametrize(("text", "name"), [("fio-2.16", "fio-2.16"), ("", "unknown")])
def test_an_old_fio_is_refused(text, name):
    with pytest.raises(CapabilityError, match=f"the version of fio is {name}, but 3.0 or later is required"):
        fio_version(Node(Completed(0, text, "")))
