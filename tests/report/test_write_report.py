from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pgherd.model.errors import UsageError
from pgherd.report import drawing, write_report
from pgherd.report.write_report import build

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements, attributes and text, with a check that every element is closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def page8(run8, drawn8, synthetic, tmp_path_factory):
    directory = synthetic.write_run(tmp_path_factory.mktemp("runs") / "run", *run8)
    text = write_report.render(*run8, list(drawn8[0].values()), {"soak": "there was none"}, directory)
    return text, Page(text)


def test_the_answer_is_the_heading_and_the_grade_says_what_it_means(page8, run8):
    _, page = page8
    text = page.text
    assert text.index(run8[0].analysis.answer) < text.index("Grade B: Some trials") < text.index("All columns are below")
    assert [tag for tag, _ in page.tags].count("h1") == 1


def test_sections_stand_in_the_order_in_which_a_reader_needs_them(page8):
    ids = [attrs["id"] for tag, attrs in page8[1].tags if tag == "h2"]
    assert ids == [
        *("warnings", "look", "figures", "checks", "findings", "choices", "host", "settings", "versions", "repeat"),
        *("raw", "proposals", "timing"),
    ]


def test_it_needs_no_network_and_no_script(page8):
    text, page = page8
    assert not {"script", "link", "iframe", "img", "object", "embed"} & {tag for tag, _ in page.tags}
    for tag, attrs in page.tags:
        for name, value in attrs.items():
            assert not name.startswith("on")
            if name in ("src", "href", "action", "xlink:href"):
                assert not re.match(r"(?i)\s*([a-z]+:|//)", value or ""), (tag, value)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_internal_links_lead_somewhere(page8):
    ids = [attrs["id"] for _, attrs in page8[1].tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page8[1].tags:
        if (attrs.get("href") or "").startswith("#"):
            assert attrs["href"][1:] in ids


def test_figures_have_captions_that_name_their_files_and_a_name_for_a_screen_reader(page8, drawn8):
    _, page = page8
    svgs = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert len(svgs) == len(drawn8[0]) and all(attrs["role"] == "img" and attrs["aria-label"] for attrs in svgs)
    assert page.text.count("Source: trials/*/") == len(drawn8[0])
    assert "soak: there was none" in page.text


def test_verdicts_are_a_matrix_with_what_was_observed_and_wanted(page8, run8):
    _, page = page8
    cells = [attrs for tag, attrs in page.tags if tag == "td" and attrs.get("class") in ("pass", "fail", "unknown")]
    assert len(cells) == sum(len(result.checks) for result in run8[1])
    assert any("5.1% of the host's cores, expected at most 2 %" in attrs["title"] for attrs in cells if attrs["class"] == "fail")
    assert "steal failed in trials" in page.text and "not finished" in page.text


def test_the_rest_is_there(page8, run8):
    text = page8[1].text
    for said in (
        *("boosts up to 3.9 GHz", "pgherd density --vcpus 0.25", "--repro-script", "trials/*/trial.json", "io_method"),
        *("stopped: all points have their repeats", "measured share of the wall time", "85.7 % of perfect (n0derunner.com)"),
        *("/usr/lib/postgresql/18/bin", "runtime cgroup (v2, quota)", "platform: controller"),
    ):
        assert said in text, said


def test_hostile_names_stay_text(hostile8, synthetic):
    record, results = hostile8
    drawn, _ = drawing.draw(drawing.FigureInputs(record, record.analysis, results))
    page = Page(write_report.render(record, results, drawn, {"x": synthetic.HOSTILE}))
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert "\x1b" not in page.text and "<script>alert('x')</script>" in page.text
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and (attrs["href"] or "").startswith("trials/")]
    assert links and all(re.fullmatch(r"trials/[\w%.~-]+/trial\.json", link) for link in links)


@pytest.mark.parametrize("kind", ["none", "other", "soak", "process"])
def test_any_run_gives_a_page(synthetic, run8, kind):
    runs = {
        "none": lambda: (synthetic.without_numbers(run8[0]), run8[1]),
        "other": synthetic.other_study,
        "soak": lambda: synthetic.soak_run(5),
        "process": synthetic.process_run,
    }
    record, results = runs[kind]()
    page = Page(write_report.render(record, results, (), {"all": "they were not asked for"}))
    assert record.analysis.answer in page.text and "No figure was drawn." in page.text


def test_a_run_without_analysis_or_anything_else_gives_a_page(run8):
    bare = {"analysis": None, "state": "failed", "error": "no <space> left", "hosts": {}, "settings": {}, "choices": [], "proposals": []}
    record = run8[0].model_copy(update={**bare, "timing": {}, "command": [], "ended": None})
    page = Page(write_report.render(record, []))
    assert "No answer: this run failed: no <space> left." in page.text and "No trials." in page.text
    assert not [tag for tag, attrs in page.tags if (attrs.get("class") or "").startswith("grade")]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1])
def test_words_are_readable_in_light_and_dark(page8, scheme):
    """Contrast of at least 4.5 : 1, as WCAG 2.2 asks of text."""
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", re.findall(r":root \{[^}]*\}", page8[0])[scheme]))
    for name in ("ink", "muted", "link", "good", "bad", "unsure"):
        for ground in ("paper", "raised"):
            light, dark = sorted((luminance(colours[name]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


@pytest.fixture
def directory(synthetic, run8, tmp_path) -> Path:
    return synthetic.write_run(tmp_path / "run", *run8)


def names(paths, directory):
    return sorted(str(path.relative_to(directory)) for path in paths)


def test_everything_is_written_and_named(directory, run8):
    written = build(directory, *run8)
    assert written[0] == directory / "report.html"
    drawn = ("cpu", "efficiency", "fairness", "latency", "modes", "order", "published", "seconds", "throughput")
    assert names(written, directory) == sorted(
        [
            "report.html",
            "report.json",
            *(f"figures/{name}.svg" for name in drawn),
            *(f"tables/{t}.csv" for t in ("cpu", "density", "models")),
        ]
    )
    assert all(path.stat().st_size > 0 for path in written)
    assert not list(directory.rglob("*.tmp"))
    assert json.loads((directory / "report.json").read_text())["run"] == run8[0].run


def test_a_report_made_again_is_the_same(directory, run8):
    first = {path: path.read_bytes() for path in build(directory, *run8)}
    assert {path: path.read_bytes() for path in build(directory, *run8)} == first


def test_png_only_when_asked_and_never_stale(directory, run8, synthetic):
    assert {path.suffix for path in build(directory, *run8, png=True) if path.parent.name == "figures"} == {".svg", ".png"}
    (directory / "figures" / "mine.svg").write_text("<svg/>")
    build(directory, synthetic.without_numbers(run8[0]), run8[1])
    left = {path.name for path in (directory / "figures").iterdir()}
    assert left == {"fairness.svg", "order.svg", "seconds.svg", "mine.svg"}


def test_40_databases_for_a_minute_stay_below_3_mb(synthetic, tmp_path):
    record, results = synthetic.density_run(40, seconds=60)
    directory = synthetic.write_run(tmp_path / "run", record, results)
    assert build(directory, record, results)[0].stat().st_size < 3_000_000


def test_without_figures_no_plotting_library_is_imported(directory, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from pgherd.report.write_report import build; from pgherd.store.run_directory import RunDirectory\n"
        "run = RunDirectory(Path(sys.argv[1])); paths = build(run.path, run.record(), run.results(), figures=False)\n"
        "print(len(paths), sorted({'altair', 'vl_convert', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "5 []"
    assert "not requested" in (directory / "report.html").read_text()


def test_a_run_without_analysis_still_gets_its_page(directory, run8):
    written = build(directory, run8[0].model_copy(update={"analysis": None, "state": "interrupted"}), [])
    assert names(written, directory) == ["report.html", "report.json"]


def test_a_directory_that_cannot_be_written_is_a_message(run8, tmp_path):
    (tmp_path / "run").write_text("not a directory")
    with pytest.raises(UsageError, match=f"cannot write the report to {tmp_path}.*pgherd report"):
        build(tmp_path / "run", *run8, figures=False)


def test_a_failed_write_leaves_the_report_before_it(directory, run8, monkeypatch):
    before = build(directory, *run8, figures=False)[0].read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        build(directory, run8[0].model_copy(update={"analysis": None}), [], figures=False)
    assert (directory / "report.html").read_bytes() == before
