"""Plain English, counted: constructions to avoid (docs/contributing/style.md) per 10,000 words, with a ceiling for each kind of text.

``python tests/test_style.py FILE…`` prints every hit in these files, for use while writing.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

AVOID = {
    "what-opener": r"\bWhat (?:is|was|are|were|a|an|the|it|its|they|all|each|every|some|one|two|several|of|has|had|can|may|must|this|that"
    r"|there|comes?|came|happens|pgherd|PostgreSQL|stands?|lies|makes?|needs?|remains|studies|users?|any|servers?|hosts?|drivers?|trials?)"
    r"\b(?![^.!?]*\?)",
    "how-opener": r'(?:(?<=^)|(?<=[."]\s)|(?<=[."]))(?:How|Where|Whose|Who|Which) [a-z][^.?!]*[.;:]',
    "say": r"(?i)\b(?:says?|said|saying)\b",
    "tell": r"(?i)\b(?:tells?|told|telling)\b",
    "lie": r"(?i)\b(?:lie|lies|lay|lying)\b",
    "stand": r"(?i)\b(?:stands?|stood|standing)\b",
    "beside": r"(?i)\bbesides?\b",
    "somebody": r"(?i)\b(?:some|any|no|every)body\b",
    "whoever": r"(?i)\b(?:who|what|where|which|when|how)ever\b",
    "so-many": r"(?i)\bso (?:many|much|few|long|often|large|little)\b",
    "archaic": r"(?i)\b(?:anew|lest|thereof|therein|wherein|whereby|whereof|afar|want of|at last|be it|no matter|be they|in that it"
    r"|forthwith|dear|dearer|dearest|reckon(?:ed|s)?|per cent)\b",
    "own": r"(?i)\b(?:of (?:its|our|their|your|his|one's) own|ours|theirs|hers|(?:pgherd's|our|its|their|your) own)\b",
    "else": r"(?i)(?:, else\b|\b(?:some|any|every|no)(?:thing|one|where) else\b|\ball else\b)",
    "is-to": r"\b(?:is|are|was|were) to "
    r"(?:be|have|hold|do|run|go|take|make|stay|come|get|say|tell|lie|stand|use|show|know|end|fill|find)\b",
    "as-it-is": r"\bas (?:it|they|that|those|he|these|this) (?:is|are|was|were|has|have|had|does|do|stands?|lies?)\b",
    "come-to": r"(?i)\b(?:comes?|came|coming) (?:to|of|about|in|out)\b",
    "gendered": r"\b(?:he|him|his)\b",
    "honest": r"(?i)\b(?:dis)?honest(?:ly|y)?\b",
    "that-is-there": r"(?i)\b(?:that|which|what) (?:is|are|was|were) (?:there|up|wanted|meant|asked|given|left|begun|made|taken|gone)\b",
}

CEILINGS = {"source": 20, "help": 20, "messages": 20, "C": 20, "documents": 20, "commits": 20}
"""Kind of text → the most hits per 10,000 words."""

STYLE_SINCE = "53fa12a"
"""Commits after this one follow the convention for subjects."""
SUBJECT = re.compile(r"(Merge |Revert |[a-z0-9_./*,{} -]+: \S)")

_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|mypy:|pragma|ruff:|!)")
_HELP_ARGUMENTS = {"help", "short_help", "epilog", "description"}
_LEAST_WORDS = 4
"""Strings of fewer words are names or values, not messages."""


def python_texts(text: str) -> Iterator[tuple[str, str]]:
    """Each piece of prose in Python source: ('source' | 'help' | 'messages', text). 'source' are docstrings and comments."""
    tree = ast.parse(text)
    documented: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
                documented.add(id(statement.value))
                yield ("help" if _is_command(node) else "source"), statement.value.value
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg in _HELP_ARGUMENTS and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    documented.add(id(value))
                    yield "help", value.value
        if isinstance(node, ast.JoinedStr):
            documented.update(map(id, node.values))
            message = "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
            if len(message.split()) >= _LEAST_WORDS:
                yield "messages", message
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documented:
            continue
        if len(node.value.split()) >= _LEAST_WORDS and "\n" not in node.value.strip():
            yield "messages", node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield "source", re.sub(r"\s*#\s*(?:noqa|type: ignore).*", "", token.string.lstrip("# "))


def _is_command(node: ast.AST) -> bool:
    return any(
        "command(" in ast.unparse(decorator) or "group(" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())
    )


def c_comments(text: str) -> Iterator[tuple[str, str]]:
    """Each comment of C source."""
    for comment in re.findall(r"/\*(.*?)\*/", text, re.DOTALL):
        yield "C", re.sub(r"^\s*\*", " ", comment, flags=re.MULTILINE)


def markdown_prose(text: str) -> Iterator[tuple[str, str]]:
    """A Markdown document without its code blocks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield "documents", re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)


def texts_of(path: Path) -> list[tuple[str, str]]:
    """The prose of one file, by its kind."""
    extract = {".py": python_texts, ".c": c_comments, ".h": c_comments, ".md": markdown_prose}[path.suffix]
    return list(extract(path.read_text(encoding="utf-8")))


def hits(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each hit of a construction to avoid, with some context."""
    for text in texts:
        for name, pattern in AVOID.items():
            for match in re.finditer(pattern, text):
                yield name, " ".join(text[max(0, match.start() - 50) : match.end() + 50].split())


def rate(texts: list[str]) -> float:
    """Hits per 10,000 words."""
    message = sum(len(text.split()) for text in texts)
    return 1e4 * sum(1 for _ in hits(texts)) / max(message, 1)


def corpora() -> dict[str, list[str]]:
    """All prose of the project by kind."""
    paths = [*ROOT.glob("src/**/*.py"), *ROOT.glob("extension/*/src/*.[ch]"), *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    paths += [*ROOT.glob("benchmarks/*.md"), *ROOT.glob("extension/**/*.md")]
    texts: dict[str, list[str]] = {kind: [] for kind in CEILINGS}
    for path in sorted(paths):
        for kind, text in texts_of(path):
            texts[kind].append(text)
    texts["commits"] = subjects()
    return texts


def subjects() -> list[str]:
    """Subjects of the commits since the convention; none outside a Git checkout that has that commit."""
    command = ["git", "-C", str(ROOT), "log", "--format=%s", f"{STYLE_SINCE}..HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.splitlines() if result.returncode == 0 else []


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    return corpora()


@pytest.mark.parametrize("kind", CEILINGS)
def test_prose_stays_below_its_ceiling(kind, texts):
    result = rate(texts[kind])
    assert result <= CEILINGS[kind], (
        f"{kind}: {result:.0f} hits per 10,000 words, over {CEILINGS[kind]}; python tests/test_style.py FILE lists them"
    )


def test_commit_subjects_follow_the_convention():
    wrong = [subject for subject in subjects() if len(subject) > 72 or subject.endswith(".") or not SUBJECT.match(subject)]
    assert not wrong, "commit subjects are 'area: imperative subject' in at most 72 characters: " + "; ".join(wrong)


def test_texts_are_told_apart():
    source = '"""Docstring."""\n# comment  # noqa: X\nx = f"a message of {1} words"\ny = g(help="some help")\nz = "two words"\n'
    assert sorted(python_texts(source)) == [
        ("help", "some help"),
        ("messages", "a message of N words"),
        ("source", "Docstring."),
        ("source", "comment"),
    ]
    assert list(c_comments("/* a\n * b */ int x;")) == [("C", " a\n  b ")]
    assert list(markdown_prose("a\n```\nwhat is\n```\n    code\nb")) == [("documents", "a\n\n\nb")]


@pytest.mark.parametrize(
    "text, name",
    [
        ("What is left of it.", "what-opener"),
        ("How long it takes.", "how-opener"),
        ("it says so", "say"),
        ("the data lie there", "lie"),
        ("nobody reads it", "somebody"),
        ("so many of them", "so-many"),
        ("nothing of its own", "own"),
    ],
)
def test_construction_is_found(text, name):
    assert name in {result for result, _ in hits([text])}


def test_plain_text_has_no_hit():
    assert not list(hits(["Return the number of databases per host. Raises UsageError if the file cannot be read."]))


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        by_kind: dict[str, list[str]] = {}
        for kind, text in texts_of(file):
            by_kind.setdefault(kind, []).append(text)
        for kind, pieces in by_kind.items():
            print(f"{file}: {kind}: {rate(pieces):.0f} per 10,000 words")
            for name, context in hits(pieces):
                print(f"    {name}: …{context}…")
