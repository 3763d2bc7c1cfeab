"""The house rules of the package that no linter knows: who imports whom, purity, size, names, a test for every module.

Each rule is a function from parsed modules to complaints, so that it can be shown to fail on a small bad example.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Left may import right, never back nor across (of ui, cli has the one call that serves it):
# cli → ui → studies → report, export, distributed, capture → prepare → runner → cluster → runtimes
# → postgres, workloads, drivers, metrics, store → host → node → model
LAYERS = (
    {"cli"},
    {"ui"},
    {"studies"},
    {"report", "export", "distributed", "capture"},
    {"prepare"},
    {"runner"},
    {"cluster"},
    {"runtimes"},
    {"postgres", "workloads", "drivers", "metrics", "store"},
    {"host"},
    {"node"},
    {"model"},
)
PURE_LAYERS = {"study": {"analysis", "model"}, "analysis": {"model"}}
MAY_USE_PURE = {"cli", "ui", "studies", "report", "export", "distributed", "prepare", "runner"}
STUDY_EFFECTS = ("prepare", "figures", "probe")
"""Of a study's package, the modules that may import more than pure packages, by the start of their names. All others are pure."""

# The rooms of the runner: each may use those after it, and the loop, which stands above them all, any.
ROOMS = ("runner.execute", "runner.deploy")

PURE = ("model", "analysis", "study", "studies")
IMPURE_MODULES = {
    "asyncio", "duckdb", "fcntl", "http", "importlib", "io", "mmap", "multiprocessing", "os", "pathlib", "platform", "psutil", "psycopg",
    "resource", "select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
LOADERS = {"study.study"}
"""Pure modules that import the modules of studies by name."""
PURE_PATHS = {"PurePath", "PurePosixPath"}
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}
CLOCKS = {"now", "utcnow", "today"}
GENERATORS = {"Random", "default_rng"}

SCIENTIFIC = {"altair", "numpy", "scipy", "vl_convert"}
MAY_BE_SCIENTIFIC = {"analysis", "study", "studies", "report"}

MOST_LINES = 600
NO_NAMES = {"common", "helpers", "misc", "utils", "util", "helper"}

UNTESTED = {"__main__"}  # tests/cli/test_main.py starts it


@dataclass(frozen=True)
class Module:
    """A parsed module: its name without ``pgherd.`` ('' for the package itself), whether it is an ``__init__``, its text."""

    name: str
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The first part of its name: the package that it belongs to."""
        return self.name.partition(".")[0]

    @property
    def is_pure(self) -> bool:
        """Whether it does no I/O, by its package, or of a study by its name."""
        return self.layer in PURE and not (self.layer == "studies" and self.name.rpartition(".")[2].startswith(STUDY_EFFECTS))


def parse_package(root: Path) -> dict[str, Module]:
    """Every module below the package directory, by its name without the package's own."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, is_package, text, ast.parse(text, str(path)))
    return modules


def imported_names(module: Module, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """Dotted names that the module imports, anywhere in it or in the given nodes; ``from a import b`` gives ``a.b``."""
    names: set[str] = set()
    for node in ast.walk(module.tree) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["pgherd", *filter(None, module.name.split("."))]
                up = parts[: len(parts) - node.level + module.is_package]
                base = ".".join([*up, *filter(None, [node.module])])
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def dependencies(module: Module, modules: dict[str, Module]) -> set[str]:
    """The modules of this package that the module imports."""
    found = set()
    for name in imported_names(module):
        if name.partition(".")[0] != "pgherd":
            continue
        inner = name.removeprefix("pgherd").removeprefix(".")
        # from pgherd.a import b: the module a.b if there is one, else the module a
        found.add(inner if inner in modules else inner.rpartition(".")[0])
    return found - {module.name}


def may_import(layer: str) -> set[str]:
    """The packages that a package may import."""
    if layer in PURE_LAYERS:
        return PURE_LAYERS[layer]
    level = next(i for i, layers in enumerate(LAYERS) if layer in layers)
    below = set().union(*LAYERS[level + 1 :])
    return below | (set(PURE_LAYERS) if layer in MAY_USE_PURE else set())


def layer_complaints(modules: dict[str, Module]) -> list[str]:
    """Imports that go back, and packages of no layer."""
    complaints = []
    known = set(PURE_LAYERS).union(*LAYERS)
    for module in modules.values():
        if module.layer in ("", "__main__"):
            continue
        if module.layer not in known:
            complaints.append(f"{module.name}: no layer is called {module.layer}")
            continue
        layers = {"study", *PURE_LAYERS["study"]} if module.layer == "studies" and module.is_pure else may_import(module.layer)
        allowed = layers | {module.layer, ""}
        complaints += [
            f"{module.name} imports {other}: it may import {', '.join(sorted(layers)) or 'nothing'}"
            for other in sorted(dependencies(module, modules))
            if other.partition(".")[0] not in allowed
        ]
    return complaints


def room_complaints(modules: dict[str, Module]) -> list[str]:
    """Imports from a room of the runner into one before it."""
    room = {name: next((i for i, one in enumerate(ROOMS) if name.startswith(f"{one}.")), len(ROOMS)) for name in modules}
    return [
        f"{name} imports {other}: {ROOMS[room[name]]} comes after {ROOMS[room[other]]}"
        for name, module in modules.items()
        for other in sorted(dependencies(module, modules))
        if room[other] < room[name] < len(ROOMS)
    ]


def cycle_complaints(modules: dict[str, Module]) -> list[str]:
    """Circles of modules that import each other."""
    graph = {name: dependencies(module, modules) for name, module in modules.items()}
    complaints: list[str] = []
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            complaints.append(" → ".join([*path[path.index(name) :], name]))
        elif name not in finished:
            for other in sorted(graph.get(name, ())):
                visit(other, [*path, name])
            finished.add(name)

    for name in graph:
        visit(name, [])
    return complaints


def purity_complaints(modules: dict[str, Module]) -> list[str]:
    """Input, output, clocks and unseeded chance where there must be none."""
    complaints = []
    for module in modules.values():
        if not module.is_pure:
            continue
        for name in sorted(imported_names(module)):
            top, _, rest = name.partition(".")
            if top in IMPURE_MODULES and rest not in PURE_PATHS and not (name == "importlib" and module.name in LOADERS):
                complaints.append(f"{module.name} imports {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                owner, _, last = called.rpartition(".")
                unseeded = last in GENERATORS and not node.args and not node.keywords
                shared = owner in ("random", "np.random", "numpy.random") and last not in {*GENERATORS, "Generator", "SeedSequence"}
                if called in IMPURE_CALLS or last in CLOCKS or unseeded or shared:
                    complaints.append(f"{module.name}:{node.lineno} calls {called}")
    return complaints


def scientific_complaints(modules: dict[str, Module]) -> list[str]:
    """Scientific libraries imported with the module where only a function may do it: they cost a start-up its speed."""
    complaints = []
    for module in modules.values():
        if module.layer in MAY_BE_SCIENTIFIC:
            continue
        for name in sorted(imported_names(module, _run_at_import(module.tree))):
            if name.partition(".")[0] in SCIENTIFIC:
                complaints.append(f"{module.name} imports {name} at its top")
    return complaints


def _run_at_import(node: ast.AST) -> Iterable[ast.AST]:
    """All nodes but those in functions and under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _run_at_import(child)


def size_complaints(modules: dict[str, Module]) -> list[str]:
    """Modules too long to be one thing."""
    lengths = {name: len(module.text.splitlines()) for name, module in modules.items()}
    return [f"{name} has {length} lines, over {MOST_LINES}" for name, length in lengths.items() if length > MOST_LINES]


def name_complaints(modules: dict[str, Module]) -> list[str]:
    """Modules named after nothing."""
    return [f"{name}: name it after what it holds" for name in modules if NO_NAMES & set(name.split("."))]


def class_complaints(modules: dict[str, Module]) -> list[str]:
    """Public classes of the same name: a name has one meaning."""
    places: dict[str, list[str]] = {}
    for name, module in modules.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    return [f"{name} is a class of {' and of '.join(found)}" for name, found in places.items() if len(found) > 1]


def runs_code(module: Module) -> bool:
    """Whether any function has a body; Protocols and declared models have none."""
    return any(
        not all(isinstance(statement, ast.Pass) or _is_constant(statement) for statement in node.body)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _is_constant(statement: ast.stmt) -> bool:
    """A docstring, or an ellipsis."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_complaints(modules: dict[str, Module], tests: Path, untested: set[str]) -> list[str]:
    """Modules without a test file of their name and that no test of their package imports, unless there is nothing in them to run."""
    complaints = []
    texts: dict[Path, str] = {}
    for name, module in modules.items():
        if module.is_package or name in untested or not runs_code(module):
            continue
        package, _, last = name.rpartition(".")
        home = tests / Path(*package.split("."))
        if home not in texts:
            texts[home] = "\n".join(file.read_text(encoding="utf-8") for file in sorted(home.glob("*.py")))
        imported = rf"pgherd\.{re.escape(name)}\b|from pgherd\.{re.escape(package)} import [^\n]*\b{last}\b"
        if not (home / f"test_{last}.py").is_file() and not re.search(imported, texts[home]):
            complaints.append(f"{name}: no test in {home.relative_to(tests.parent)} imports it")
    return complaints + [f"UNTESTED names {name}, which is no module" for name in sorted(untested - set(modules))]


def _top_level_names(module: Module) -> set[str]:
    """Names that a module defines or imports at its top level, and the names of the members of its classes."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


_REFERENCE = re.compile(r"``(?:pgherd\.)?([a-z_]+(?:\.\w+)+)(?:\(\))?``|\bpgherd\.([a-z_]+(?:\.\w+)+)")
_FILE_ENDINGS = {"csv", "html", "json", "jsonl", "md", "parquet", "py", "sql", "toml", "yaml"}


def reference_complaints(modules: dict[str, Module]) -> list[str]:
    """References in docstrings, such as ``node.protocol.Node``, to a module or a name of pgherd that does not exist."""
    packages = {name.partition(".")[0] for name, module in modules.items() if "." in name}
    complaints = []
    for name, module in modules.items():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant) or not isinstance(node.value.value, str):
                continue
            for match in _REFERENCE.finditer(node.value.value):
                reference = match[1] or match[2]
                parts = reference.split(".")
                if parts[0] not in packages or parts[-1] in _FILE_ENDINGS:
                    continue
                known = max(count for count in range(len(parts) + 1) if count == 0 or ".".join(parts[:count]) in modules)
                rest = parts[known:]
                if known == 0 or (rest and rest[0] not in _top_level_names(modules[".".join(parts[:known])])):
                    complaints.append(f"{name}:{node.lineno}: {reference} does not exist")
    return complaints


test_complaints.__test__ = False  # type: ignore[attr-defined]

RULES = [
    layer_complaints,
    room_complaints,
    cycle_complaints,
    purity_complaints,
    scientific_complaints,
    size_complaints,
    name_complaints,
    class_complaints,
    reference_complaints,
]


@pytest.fixture(scope="module")
def pgherd() -> dict[str, Module]:
    return parse_package(ROOT / "src/pgherd")


def complain(complaints: list[str]) -> None:
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps(rule, pgherd):
    complain(rule(pgherd))


def test_every_module_has_its_test(pgherd):
    complain(test_complaints(pgherd, ROOT / "tests", UNTESTED))


# ---- the rules themselves


@pytest.fixture
def example(tmp_path):
    """A function that writes modules (path → text) and parses them as a package."""

    def write(files: dict[str, str]) -> dict[str, Module]:
        for path, text in files.items():
            file = tmp_path / "pgherd" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
        return parse_package(tmp_path / "pgherd")

    return write


@pytest.mark.parametrize(
    "path, text",
    [
        ("node/a.py", "from pgherd.host import b"),
        ("node/a.py", "import pgherd.host.b"),
        ("node/a.py", "from ..host.b import c"),
        ("node/a.py", "from ..host import b"),
        ("node/__init__.py", "from ..host import b"),
        ("node/a.py", "def f():\n    from pgherd.host.b import c"),
        ("model/a.py", "from pgherd.node.b import c"),
        ("analysis/a.py", "from pgherd.studies.b import c"),
        ("study/a.py", "from pgherd.store.b import c"),
        ("studies/x/propose.py", "from pgherd.store.b import c"),
        ("study/a.py", "from pgherd.studies.x.propose import c"),
        ("store/a.py", "from pgherd.analysis.b import c"),
        ("store/a.py", "from pgherd.metrics.b import c"),
        ("report/a.py", "from pgherd.studies.x.options import c"),
        ("runner/a.py", "from pgherd.prepare.b import c"),
        ("elsewhere/a.py", ""),
    ],
)
def test_layers_refuse(example, path, text):
    assert layer_complaints(example({"host/b.py": "", "host/__init__.py": "", path: text}))


@pytest.mark.parametrize(
    "path, text",
    [
        ("host/a.py", "from pgherd.node.b import c\nfrom pgherd.model import d"),
        ("cli/a.py", "from pgherd.model import d\nfrom pgherd.analysis.e import f"),
        ("runner/a.py", "from pgherd.study.e import f\nfrom . import b"),
        ("studies/x/prepare.py", "from pgherd.store.b import c"),
        ("studies/x/figures_more.py", "from pgherd.report.b import c"),
        ("cli/a.py", "from pgherd import __version__"),
        ("analysis/a.py", "import numpy\nfrom pgherd.model.d import e"),
    ],
)
def test_layers_allow(example, path, text):
    assert not layer_complaints(example({path: text, "runner/b.py": ""}))


def test_rooms_of_the_runner_are_used_one_way(example):
    files = {
        "runner/deploy/b.py": "",
        "runner/execute/c.py": "from pgherd.runner.deploy import b",
        "runner/d.py": "from pgherd.runner.execute import c",
    }
    assert not room_complaints(example(files))
    (complaint,) = room_complaints(example(files | {"runner/deploy/a.py": "from pgherd.runner.execute import c"}))
    assert complaint == "runner.deploy.a imports runner.execute.c: runner.deploy comes after runner.execute"


def test_cycles_are_found(example):
    files = {"a.py": "import pgherd.b", "b.py": "def f():\n    from pgherd import c", "c.py": "from .a import x"}
    assert cycle_complaints(example(files)) == ["a → b → c → a"]


def test_no_cycle_in_a_diamond(example):
    files = {"a.py": "from pgherd import b, c", "b.py": "from pgherd import d", "c.py": "from pgherd import d", "d.py": ""}
    assert not cycle_complaints(example(files))


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from pathlib import Path",
        "import os.path as p",
        "def f():\n    import subprocess",
        "def f(p):\n    return open(p)",
        "from datetime import datetime\nx = datetime.now()",
        "import random\nx = random.random()",
        "import random\nx = random.Random()",
        "import numpy as np\nx = np.random.default_rng()",
        "import numpy as np\nx = np.random.normal()",
        "print(1)",
    ],
)
def test_impurity_is_found(example, text):
    for layer in PURE:
        assert purity_complaints(example({f"{layer}/a.py": text}))
    pure = {f"{layer}/a.py": "" for layer in PURE}
    assert not purity_complaints(example({**pure, "host/a.py": text, "studies/x/prepare.py": text}))


@pytest.mark.parametrize("text", ["import random\nx = random.Random(7)", "from pathlib import PurePosixPath", "import math", "x.open"])
def test_purity_allows(example, text):
    assert not purity_complaints(example({"studies/a.py": text}))


@pytest.mark.parametrize("text", ["import numpy", "from scipy.stats import norm", "try:\n    import altair\nexcept ImportError:\n    pass"])
def test_scientific_libraries_at_the_top_are_found(example, text):
    assert scientific_complaints(example({"host/a.py": text}))
    assert not scientific_complaints(example({"host/a.py": "", "analysis/a.py": text}))


@pytest.mark.parametrize("text", ["def f():\n    import numpy", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy"])
def test_scientific_libraries_in_functions_are_allowed(example, text):
    assert not scientific_complaints(example({"host/a.py": text}))


def test_size_and_name_are_found(example):
    modules = example({"host/utils.py": "x = 1\n" * (MOST_LINES + 1), "host/b.py": "x = 1\n" * MOST_LINES})
    assert len(size_complaints(modules)) == len(name_complaints(modules)) == 1


def test_classes_of_one_name_are_found(example):
    modules = example({"host/a.py": "class Load: ...\nclass _Row: ...", "node/b.py": "class Load: ...\nclass _Row: ...\nclass Other: ..."})
    assert class_complaints(modules) == ["Load is a class of host.a and of node.b"]


def test_dead_references_are_found(example):
    modules = example(
        {
            "host/__init__.py": "",
            "host/a.py": '"""See ``host.b.f``, ``host.b.g``, ``host.c``, ``report.html``, pgherd.host.b and pgherd.host.d."""',
            "host/b.py": "def f():\n    return 1",
        }
    )
    assert reference_complaints(modules) == [f"host.a:1: {name} does not exist" for name in ("host.b.g", "host.c", "host.d")]


def test_missing_test_is_found(example, tmp_path):
    modules = example(
        {
            "host/a.py": "def f():\n    return 1",
            "host/b.py": "def f():\n    return 1",
            "host/protocol.py": 'class P:\n    def f(self):\n        """Nothing to run."""\n        ...',
            "host/__init__.py": "def f():\n    return 1",
        }
    )
    assert test_complaints(modules, tmp_path / "tests", {"host.b", "host.gone"}) == [
        "host.a: no test in tests/host imports it",
        "UNTESTED names host.gone, which is no module",
    ]
    (tmp_path / "tests/host").mkdir(parents=True)
    (tmp_path / "tests/host/test_more.py").write_text("from pgherd.host import a, b")
    assert not test_complaints(modules, tmp_path / "tests", {"host.b"})
