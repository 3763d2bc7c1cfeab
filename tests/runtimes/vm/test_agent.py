from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from pgherd.runtimes.vm import agent, root_image


def test_it_imports_nothing_of_pgherd_and_little_else():
    """What it imports at its start costs each guest's boot: half a second per ten milliseconds, where a processor is emulated."""
    trees = [ast.parse(file.read_text()) for file in root_image.AGENT_FILES]
    inside = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    ours = {file.stem for file in root_image.AGENT_FILES}
    assert {node.module.rpartition(".")[2] for node in inside if node.module.startswith(("pgherd", "agent"))} <= ours, (
        "no other file is there"
    )
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import agent; print(*sorted(set(sys.modules) - before))"
    )
    argv = [sys.executable, "-I", "-S", "-B", "-c", script, str(Path(agent.__file__).parent)]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert not {"json", "re", "enum", "subprocess", "threading", "socket", "ctypes", "typing", "collections"} & set(loaded.split()), loaded
