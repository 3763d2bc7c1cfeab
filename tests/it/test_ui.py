"""The web page in a real browser (Debian's Chromium): every page and action, real servers below, by keyboard, in dark and on a phone."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pgherd.report.write_report import build
from pgherd.store.samples import write_samples

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[1] / "fixtures" / "ui" / "axe.min.js"
FLEET = Path(__file__).parents[2] / "scenarios" / "fleet-200"
FIRST, SECOND = "20260131-120000-density-0001", "20260201-120000-density-0002"
PATIENCE = 60_000.0
"""Milliseconds; no step takes this long unless it hangs."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    with playwright.sync_playwright() as play:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = play.chromium.launch(executable_path=CHROMIUM, args=[*flags, "--disable-gpu"])
        yield opened
        opened.close()


class Served:
    """``pgherd ui`` in a process of its own."""

    def __init__(self, root: Path, runs: Path, *arguments: str) -> None:
        self.root, self.runs = root, runs
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PGHERD_", "XDG_"))}
        environment |= {"XDG_STATE_HOME": str(root / "state"), "XDG_CACHE_HOME": str(root / "cache"), "HOME": str(root)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pgherd", "ui", "--port", "0", "--json", "--runs-dir", str(runs), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                break
        document = json.loads(text)
        self.address: str = document["address"].rstrip("/")
        self.token: str = document["token"]
        self.sign_in: str = document["sign_in_url"]

    def open(self, page: Any, path: str = "/") -> None:
        """Show a page to a user who has opened the printed address."""
        page.goto(self.sign_in)
        if path != "/":
            page.goto(self.address + path)

    def end(self) -> str:
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=60)
        return err


@pytest.fixture
def page(browser) -> Iterator[Any]:
    """A page that notes what it asks for, and what it complains of; at the end neither may be anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    elsewhere = [url for url in requests if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"]
    assert elsewhere == [], elsewhere
    unexpected = [text for text in complaints if not re.search("status of 40[014]", text)]  # what was done wrong on purpose
    assert unexpected == [], unexpected


def faults(page: Any) -> list[str]:
    """What axe finds that is serious."""
    if not AXE.is_file():
        pytest.skip("tests/fixtures/ui/axe.min.js is not there")
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": AXE.read_text()})  # past the page's own policy, which takes no such script
    result = session.send("Runtime.evaluate", {"expression": "axe.run()", "awaitPromise": True, "returnByValue": True})
    violations = result["result"]["value"]["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]


def no_wider_than_its_window(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.fixture
def live(pgherd) -> Iterator[Served]:
    """The page over a directory without runs, on which real servers are started."""
    served = Served(pgherd.root, pgherd.runs)
    try:
        yield served
    finally:
        err = served.end()
        for file in pgherd.runs.glob("*/live.json"):  # what a failed test has left running
            os.kill(json.loads(file.read_text())["pid"], signal.SIGINT)
    assert served.process.returncode == 130 and err.strip() == "pgherd: interrupted", err


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> Iterator[Served]:
    """The page over two runs that were made up, with report and samples."""
    root = tmp_path_factory.mktemp("made-up")
    lay_runs(root / "runs")
    inputs = ("demand.csv", "--hosts", "hosts.yaml", "--constraints", "constraints.csv", "--output", str(root / "runs" / "fleet"))
    subprocess.run([sys.executable, "-P", "-m", "pgherd", "place", *inputs], cwd=FLEET, check=True, stdout=subprocess.DEVNULL)
    served = Served(root, root / "runs")
    try:
        yield served
    finally:
        err = served.end()
    assert err.strip() == "pgherd: interrupted", err


def lay_runs(root: Path) -> None:
    path = Path(__file__).parents[1] / "fixtures" / "report" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_for_the_page", path)
    assert spec is not None and spec.loader is not None
    synthetic = importlib.util.module_from_spec(spec)
    sys.modules["synthetic_for_the_page"] = synthetic
    spec.loader.exec_module(synthetic)
    for number, (name, host) in enumerate([(FIRST, "db-host-1"), (SECOND, "<b>other</b>")]):
        record, results = synthetic.density_run(12, seconds=5, seed=number, name=name, alone=64_000 - 2000 * number)
        hosts = {"local": record.hosts["local"].model_copy(update={"hostname": host})}
        record = record.model_copy(update={"hosts": hosts, "started": record.started + 86_400 * number})
        synthetic.write_run(root / name, record, results)
        for result in results:
            trial = root / name / "trials" / result.id
            for file in (trial / "samples").iterdir():
                file.unlink()
            if result.phases:
                write_samples(trial, samples_of(result))
        if name == FIRST:  # figures take long, and one run's are enough
            build(root / name, record, results)


def samples_of(result: Any) -> list[Any]:
    start, rng = result.phases[0].start - 1, random.Random(result.id)
    rows = []
    for second in range(8):
        for number, name in enumerate(name for name in result.phases[0].metrics if name.startswith("container:")):
            rows.append((start + second, "cgroup_cpu", name, {"cpu.usage": second * (3.5 + number / 40) + rng.random() / 4}))
            rows.append((start + second, "cgroup_memory", name, {"memory.usage": 2**28 + 2**22 * (second + number)}))
        rows.append((start + second, "cpu", "host", {"cpu.user": 30.0 * second + rng.random(), "cpu.online": 48.0}))
    return rows


def _plan(page: Any, served: Served, **values: str) -> None:
    served.open(page, "/start")
    page.get_by_role("link", name=re.compile("^density")).click()
    page.get_by_text("Further options").click()
    for label, value in values.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(value)
    page.get_by_role("button", name="Show the plan").click()


def test_from_nothing_to_an_answer(live, page):
    live.open(page)
    page.get_by_text("There are no runs in").wait_for()
    _plan(page, live, Databases="one")  # refused by the page itself; what the command line refuses: tests/ui/test_jobs.py
    page.get_by_role("alert").wait_for()
    assert page.get_by_label("Databases").input_value() == "one"
    short = {"Databases": "1,2", "Scale": "1", "Duration": "1s", "Warmup": "0s", "Repeats": "1"}
    _plan(page, live, **short, Time_budget="5s")
    page.get_by_role("heading", name="Host changes").wait_for()
    assert not list(live.runs.glob("*"))  # a plan changes nothing
    assert faults(page) == []
    page.get_by_role("button", name="Start on this host").click()
    page.wait_for_url("**/runs/*")
    page.get_by_role("heading", name="Now").wait_for()
    page.get_by_role("heading", name="Checks").first.wait_for()
    page.get_by_role("link", name="Full report").wait_for(timeout=2 * PATIENCE)  # the page loads itself anew when the run has ended
    page.get_by_text("Grade").first.wait_for()
    assert page.locator(".figures img").count() >= 2
    page.get_by_role("link", name="Show samples").click()
    page.locator("#plot[data-drawn] canvas").wait_for()


def test_stop_and_go_on(live, page):
    _plan(page, live, Databases="1,2", Scale="1", Duration="15s", Repeats="1", Time_budget="60s")
    page.get_by_role("button", name="Start on this host").click()
    page.get_by_text(re.compile(r"(warm-up|measuring), \d+ of")).wait_for()
    name = urlsplit(page.url).path.rpartition("/")[2]
    page.locator(".curve .line").first.wait_for(state="attached")
    assert faults(page) == []
    page.get_by_role("link", name="Stop …").click()
    assert faults(page) == []
    page.get_by_role("button", name="Stop run").click()
    page.get_by_role("link", name="Resume …").wait_for()
    assert json.loads((live.runs / name / "run.json").read_text())["state"] == "interrupted"
    page.get_by_role("link", name="Resume …").click()
    page.get_by_role("button", name="Resume run").click()
    page.get_by_text(re.compile(r"(warm-up|measuring), \d+ of")).wait_for()
    live.open(page, f"/runs/{name}/stop")
    page.get_by_role("button", name="Stop run").click()
    page.get_by_role("link", name="Resume …").wait_for()


def test_browse_and_read(two_runs, page):
    two_runs.open(page)
    assert page.locator("table.runs td.answer").count() == 2
    page.get_by_label("Host").select_option("db-host-1")
    page.get_by_text("1 run of 2").wait_for()
    assert "host=db-host-1" in page.url
    page.get_by_label("Find").fill("nothing like it")
    page.get_by_text("No match among 2 runs").wait_for()
    page.get_by_role("link", name="All", exact=True).click()
    page.locator("table.runs td", has_text="<b>other</b>").wait_for()
    assert faults(page) == []
    page.locator("td.answer a").last.click()
    page.evaluate("for (const image of document.images) image.loading = 'eager'")
    page.locator(".figures img").last.scroll_into_view_if_needed()
    loaded = "document.images.length > 1 && [...document.images].every(image => image.complete && image.naturalWidth > 0)"
    assert any(page.evaluate(loaded) or page.wait_for_timeout(200) for _ in range(100))  # the page's policy forbids waiting in it
    assert faults(page) == []
    page.get_by_role("link", name="Full report").click()
    page.get_by_role("heading", name="Findings").wait_for()


def test_explore(two_runs, page):
    two_runs.open(page, f"/runs/{FIRST}/explore")
    page.locator("#plot[data-drawn] canvas").wait_for()
    page.get_by_role("heading", name=re.compile("cpu.usage of containers")).wait_for()
    assert faults(page) == []
    page.get_by_label("View").select_option("spread")
    page.wait_for_url("**view=spread**")
    page.get_by_label("Metric").select_option("host/cpu/cpu.user")
    page.get_by_role("heading", name=re.compile("cpu.user of the host")).wait_for()
    page.get_by_label("Phase").focus()
    page.get_by_label("Phase").select_option("1")
    page.wait_for_url("**phase=1**")
    page.locator("#plot[data-drawn] canvas").wait_for()
    colours = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
    assert page.locator("#plot canvas").evaluate(colours) > 20  # not an empty picture
    assert page.evaluate("document.activeElement.id") == "phase"


def test_what_is_chosen_in_a_part_that_has_just_come_is_not_lost(two_runs, page):
    """The next choice is made in the same turn of the browser's loop that brought the part: nothing can be quicker."""
    two_runs.open(page, f"/runs/{FIRST}/explore")
    page.locator("#plot[data-drawn] canvas").wait_for()
    page.evaluate(
        """() => document.addEventListener("htmx:afterSwap", () => queueMicrotask(() => {
            const metric = document.querySelector("select[name=metric]");
            metric.value = "host/cpu/cpu.user";
            metric.dispatchEvent(new Event("change", { bubbles: true }));
        }), { once: true })"""
    )
    page.get_by_label("View").select_option("spread")
    page.get_by_role("heading", name=re.compile("cpu.user of the host")).wait_for()
    assert faults(page) == []


def test_compare(two_runs, page):
    two_runs.open(page)
    for box in page.locator("table.runs").get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare selected runs").click()
    page.get_by_role("heading", name=f"{SECOND} vs. {FIRST}").wait_for()
    page.get_by_text("Changes with simultaneous").wait_for()
    page.get_by_text("<b>other</b>").first.wait_for()
    assert faults(page) == []
    page.get_by_label("Baseline").select_option(SECOND)
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name=f"{FIRST} vs. {SECOND}").wait_for()


def test_a_move_of_a_database(two_runs, page):
    """Its effect is shown, and the plan stays as it was."""
    stored = json.loads((two_runs.runs / "fleet" / "plan.json").read_text())
    other = next(host for host in stored["use"] if host not in ("large-1", stored["placement"]["db0001"]))
    two_runs.open(page)
    page.get_by_role("link", name="Placement").click()
    page.get_by_role("link", name="fleet").click()
    page.get_by_text("No broken constraints").wait_for()
    for database in ("db0005", "db0001"):
        page.get_by_label("Database", exact=True).fill(database)
        page.get_by_label("To host").fill(other)
        page.get_by_role("button", name="Show the effect").click()
        page.get_by_text(f"{database}: {stored['placement'][database]} → {other}").wait_for()
    page.get_by_text("database db0005 is pinned to large-1").wait_for()
    assert page.locator(".figures img").count() == 2 and page.locator("table").first.locator("tbody tr").count() == 2 * len(
        {"large-1", stored["placement"]["db0001"], other}
    )
    loaded = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
    assert any(page.evaluate(loaded) or page.wait_for_timeout(200) for _ in range(100))
    assert faults(page) == []
    page.get_by_role("link", name="Undo all moves").click()
    page.get_by_text("No broken constraints").wait_for()
    assert json.loads((two_runs.runs / "fleet" / "plan.json").read_text()) == stored


def test_signing_in(two_runs, page):
    """Without the token no page is shown; and an address that does not exist is a page, too."""
    served = Served(two_runs.root, two_runs.runs)
    try:
        page.goto(f"{served.address}/runs/{FIRST}")
        page.get_by_label("Token").fill("not the token")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        assert faults(page) == [] and FIRST not in page.content()
        page.get_by_label("Token").fill(served.token)
        page.get_by_role("button", name="Sign in").click()
        page.locator("table.runs td.answer").nth(1).wait_for()
        assert page.locator("table.runs td.answer").count() == 2
        page.goto(f"{served.address}/runs/no-such-run")
        page.get_by_role("link", name="Show all runs").wait_for()
        assert faults(page) == []
    finally:
        served.end()


def test_by_keyboard(two_runs, page):
    """From the address bar to a run without a pointer; where the keyboard is can be seen."""
    two_runs.open(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    observed = []
    for _ in range(30):
        page.keyboard.press("Tab")
        observed.append(page.evaluate("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"))
        if page.evaluate("document.activeElement.closest('td.answer') !== null"):
            break
    assert page.evaluate("document.activeElement.closest('td.answer') !== null"), observed
    assert all(outline != "none" for _, outline in observed), observed
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")


def test_in_the_dark_on_a_phone(two_runs, page):
    """Nothing wider than its window, nothing too pale."""
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 375, "height": 740})
    paths = ("/", "/start", "/start/density", f"/runs/{FIRST}", f"/runs/{FIRST}/explore", f"/compare?run={FIRST}&run={SECOND}", "/compare")
    paths += ("/placement", "/placement/fleet?database=db0005&host=small-1")
    for path in paths:
        two_runs.open(page, path)
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert no_wider_than_its_window(page), path
        assert faults(page) == [], path
