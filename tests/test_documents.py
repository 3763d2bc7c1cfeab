"""The Markdown documents: size, links, anchors, table form, and the commands of the README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_WORDS = 35_000
MAX_HOWTO_WORDS = 1_500
KINDS = ("tutorial", "howto", "reference", "explanation", "contributing")
GENERATED = {"cli.md": "options", "checks.md": "checks", "metrics.md": "metrics", "json.md": "json"}
"""Reference page → name of its generated block."""
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
    """Return all Markdown files of the project; notes on test inputs are none."""
    files = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(
        path
        for path in files
        if not path.parts[0].startswith(".") and path.parts[0] != "pgherd-runs" and path.parts[:2] != ("tests", "fixtures")
    )


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    counter: Counter[str] = Counter()
    result = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        result.add(f"{slug}-{counter[slug]}" if counter[slug] else slug)
        counter[slug] += 1
    return result


def dead_links(root: Path, page: Path) -> Iterator[str]:
    """Yield each relative link of a page whose file or anchor does not exist."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", (root / page).read_text(encoding="utf-8")))
    for target in (match[1] or match[2] for match in _LINK.finditer(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (root / page).parent / name if name else root / page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            yield f"{page}: {target}"


def test_documents_are_short_enough():
    lengths = {page: len((ROOT / page).read_text(encoding="utf-8").split()) for page in documents()}
    largest = ", ".join(f"{page} {count}" for page, count in Counter(lengths).most_common(5))
    assert sum(lengths.values()) <= MAX_WORDS, f"{sum(lengths.values())} words; the largest: {largest}"
    long = [str(page) for page, count in lengths.items() if page.parts[:2] == ("docs", "howto") and count > MAX_HOWTO_WORDS]
    assert not long, f"how-to guides of more than {MAX_HOWTO_WORDS} words: {long}"


def test_every_page_has_one_kind_and_is_linked_from_the_readme():
    pages = [page for page in documents() if page.parts[0] == "docs"]
    assert all(len(page.parts) == 3 and page.parts[1] in KINDS for page in pages), pages
    readme = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not [str(page) for page in pages if f"({page})" not in readme]


@pytest.mark.parametrize("page", documents(), ids=str)
def test_no_link_is_dead(page):
    assert not list(dead_links(ROOT, page))


@pytest.mark.parametrize("page", documents(), ids=str)
def test_rows_of_a_table_have_the_width_of_its_head(page):
    text = _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, f"{page}: {table.splitlines()[0]}"


@pytest.mark.parametrize("page, name", GENERATED.items())
def test_generated_blocks_have_their_place(page, name):
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert len(re.findall(rf"^<!-- generated: {name} -->\n(?:.*\n)*?<!-- end -->$", text, re.MULTILINE)) == 1


def readme_commands() -> list[str]:
    """Return the command lines of pgherd in the README, without ``pgherd``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(_FENCE.findall(text))
    return re.findall(r"^(?:\$ )?(?:\./)?pgherd (.+?)(?:  +#.*)?$", blocks, re.MULTILINE) + re.findall(r"`pgherd ([^`]+)`", text)


def test_commands_of_the_readme_have_help():
    lines = readme_commands()
    assert len(lines) >= 20
    for command in sorted({shlex.split(line)[0] for line in lines}):
        result = subprocess.run(
            [sys.executable, "-I", "-m", "pgherd", command, "--help"], capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == 0 and result.stdout.startswith("Usage: "), f"pgherd {command}: {result.stderr}"


def test_dead_links_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# A *heading*: x\n# A heading x\n```\n# none\n```\n")
    (tmp_path / "a.md").write_text(
        "[a](b.md) [b](b.md#a-heading-x) [c](b.md#a-heading-x-1) [d](b.md#none) [e](c.md) [f](https://x.y) `[g](h.md)`\n"
    )
    assert list(dead_links(tmp_path, Path("a.md"))) == ["a.md: b.md#none", "a.md: c.md"]


def test_generated_blocks_are_those_of_the_code():
    result = subprocess.run([sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_notebook_of_the_guide_runs(run_on_disk, monkeypatch, capsys):
    monkeypatch.chdir(run_on_disk.parents[1])
    code = "".join(
        re.findall(r"^```python$(.*?)^```$", (ROOT / "docs/howto/notebook.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
    names: dict[str, object] = {}
    exec(compile(code, "notebook.md", "exec"), names)
    assert names["run"].name == run_on_disk.name and names["run"].answer in capsys.readouterr().out
    assert {mb for *_, mb in names["peaks"].fetchall()} == {(2**28 + 2) / 2**20}
