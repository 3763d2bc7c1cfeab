import resource
import subprocess
import sys

import pytest

from pgherd.host import open_files

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), 4096),
        ((1024, 524288), open_files.ENOUGH),
        ((1024, INFINITY), open_files.ENOUGH),
        ((100_000, 524288), None),
        ((4096, 4096), None),
        ((INFINITY, INFINITY), None),
    ],
)
def test_the_soft_limit_is_raised_and_never_lowered(monkeypatch, before, after):
    written = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: before)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: written.append(limits))
    assert open_files.allow_many() == (before[0] if after is None else after)
    assert written == ([] if after is None else [(after, before[1])])


def test_a_process_may_do_it():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != INFINITY and hard < 600:
        pytest.skip(f"no process may have more than {hard} files open here")
    script = "from pgherd.host.open_files import allow_many; allow_many(); print(len([open('/dev/null') for _ in range(500)]))"
    limited = ["sh", "-c", 'ulimit -Sn 64 && exec "$@"', "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "500\n", done.stderr


def test_what_it_starts_has_the_limit_of_before():
    lines = [
        "from pgherd.host.open_files import allow_many",
        "from pgherd.node.local import LocalNode",
        "from pgherd.node.protocol import Command",
    ]
    lines += ["allow_many()", "print(LocalNode().run(Command(['sh', '-c', 'ulimit -S -n; ulimit -H -n'])).out.split())"]
    limited = ["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert done.stdout == f"{['256', 'unlimited' if hard == INFINITY else str(hard)]}\n", done.stderr
