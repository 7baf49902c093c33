"""The HTML page: what it gathers by line, how large it gets, and how a real Chromium shows it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.invented import InventedRun
from tests.report import browser
from tests.report.test_formats import EVIL, empty_report, evil_report, full_report, tags
from xladoctor.cli.app import main
from xladoctor.diagnosis import diagnose
from xladoctor.findings import Finding, Location, Severity
from xladoctor.graphs import Change, Diff, LineChanges
from xladoctor.page import with_page
from xladoctor.readings import load
from xladoctor.report import cards, render, tracks
from xladoctor.results import SourceText
from xladoctor.timeline import Event, Stretch, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.results import Report

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "sample_runs" / "ct_slices" / "recorded" / "runnable"
LARGEST, USUAL = 5_000_000, 2_000_000


@pytest.fixture(scope="module")
def recorded() -> Report:
    """A real run with its sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        read = load([RECORDED])
        return with_page(diagnose(read), read)


def evil_page() -> Report:
    """Hostile text also where only the page has some."""
    place = Location(EVIL + ".py", 1, function=EVIL)
    change = Change("changed", EVIL, EVIL, EVIL, 2, origin=True)
    stretch = Stretch(
        0, 1, 1, 0.0, 1.0, {"compile": 1.0},
        (Event("compile", EVIL, place, seconds=1.0, graph=1), Event("host_sync", EVIL, place)),
    )  # fmt: skip
    return dataclasses.replace(
        evil_report(),
        timeline=Timeline((stretch,)),
        sources={EVIL + ".py": SourceText((EVIL, "\u202e" + EVIL))},
        diffs=(Diff(1, 1, (change,), (LineChanges(place, (change,)),), 0.5),),
    )


def large_report(folder: Path) -> Report:
    """An invented run of 16 cores with as many rows as 100,000 steps have, and 500 graphs."""
    run = InventedRun(cores=16)
    for core in range(16):
        for number in range(1, 1001):
            run.step(core, number, compile=0.1, host_sync=0.01, syncs=[(52, "item", 1, 0.01, 0)])
        for number in range(2000):
            run.step(core, 1001 + 50 * number, 1050 + 50 * number, execute=5.0)
            run.rows[-1] |= {"fastest": 0.05, "slowest": 0.9}
    for number in range(500):
        run.compilation(0, number + 1, graph=f"g{number}", line=40 + number % 80)
    run.end()
    return diagnose(load([run.write(folder / "run")]))


# What is gathered


def test_a_line_has_one_card_with_all_its_findings() -> None:
    def finding(code: str, row: int | None, seconds: float, severity: Severity) -> Finding:
        places = () if row is None else (Location("train.py", row),)
        return Finding(code, code, severity, "m", locations=places, seconds=seconds)

    found = cards.cards([
        finding("XLA201", 52, 3.0, Severity.WARNING), finding("XLA411", None, 2.0, Severity.ERROR),
        finding("XLA101", 60, 2.0, Severity.WARNING), finding("XLA501", 52, 1.0, Severity.ERROR),
        finding("XLA412", None, 1.0, Severity.ERROR),
    ])  # fmt: skip
    shown = [(card.location.row if card.location else None, len(card.findings)) for card in found]
    assert shown == [(52, 2), (None, 1), (60, 1), (None, 1)]
    assert (found[0].severity, found[0].seconds) == ("error", 4.0)
    assert found[0].suppression == "# noqa: XLA201, XLA501"


def test_costs_of_lines_are_what_the_report_counts(recorded: Report) -> None:
    spent = cards.costs(recorded)
    assert sum(cost.reads for cost in spent.values()) == recorded.summary.host_syncs
    fallbacks = sum((recorded.summary.fallbacks or {}).values())
    assert sum(cost.fallbacks for cost in spent.values()) == fallbacks
    numbers = {number for cost in spent.values() for number in cost.graphs}
    assert numbers == set(range(1, len(recorded.compilations) + 1))
    waited = sum(item.seconds or 0 for item in recorded.reads)
    computed = sum(item.seconds or 0 for item in recorded.fallbacks)
    compiled = sum((i.seconds or 0) * len(i.cores) for i in recorded.compilations)
    expected = (waited + computed + compiled) / len(recorded.cores)
    assert sum(cost.seconds for cost in spent.values()) == pytest.approx(expected)


def test_the_source_shows_the_costly_lines_hottest_most(recorded: Report) -> None:
    (file,) = cards.source(recorded, cards.cards(recorded.findings))
    assert file.name == "sample_runs/ct_slices/runnable.py"
    rows = {row.number: row for piece in file.pieces for row in piece}
    text = (ROOT / file.name).read_text(encoding="utf-8").splitlines()
    assert all(row.text == text[number - 1] for number, row in rows.items())
    spent = cards.costs(recorded)
    hottest = max(spent, key=lambda key: spent[key].seconds)
    assert rows[hottest[2]].heat == 1.0
    assert all(rows[key[2]].cost is cost or rows[key[2]].cost for key, cost in spent.items())
    page = render(recorded, "html")
    assert len(page.encode()) < USUAL
    assert page.count("rgba(var(--heat)") > 3


def test_only_python_files_below_the_current_folder_come_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "project"
    here.mkdir()
    for path in (tmp_path / "outside.py", here / "inside.py", here / "secret.txt"):
        path.write_text("one\ntwo\n")
    (here / "link.py").symlink_to(tmp_path / "outside.py")
    monkeypatch.chdir(here)
    names = ("inside.py", "../outside.py", str(tmp_path / "outside.py"), "secret.txt", "link.py",
             "missing.py", str(here / "inside.py"))  # fmt: skip
    findings = tuple(
        Finding("XLA101", "n", Severity.WARNING, "m", locations=(Location(name, 1),))
        for name in names
    )
    report = dataclasses.replace(empty_report(), findings=findings)
    shown = with_page(report, load([RECORDED])).sources
    assert set(shown) == {"inside.py", str(here / "inside.py")}


def test_every_link_of_the_page_has_its_target(recorded: Report) -> None:
    for report in (recorded, full_report(), empty_report(), evil_page()):
        page = tags(render(report, "html"))
        ids = [attributes["id"] for _, attributes in page.seen if "id" in attributes]
        assert len(ids) == len(set(ids))
        links = {
            a["href"] or "" for name, a in page.seen if name == "a" and a.get("class") != "skip"
        }
        inside = {link[1:] for link in links if link.startswith("#")}
        assert inside <= set(ids)
        assert all(link.startswith(("#", "https://")) for link in links)


def test_hostile_text_is_text_in_source_timeline_and_diffs() -> None:
    text = render(evil_page(), "html")
    page = tags(text)
    assert [name for name, _ in page.seen if name == "script"] == ["script"]
    assert "\u202e" not in text
    shown = "".join(page.text)
    assert shown.count(EVIL) >= 12


def test_a_block_of_the_timeline_tells_its_fastest_and_slowest_step(tmp_path: Path) -> None:
    drawing = tracks.tracks(large_report(tmp_path))
    assert drawing is not None
    assert len(drawing.tracks) == 16
    assert drawing.blocks_of > 1
    assert drawing.shared
    for track in drawing.tracks:
        ends = [block.x + block.width for block in track.blocks]
        assert all(end <= tracks.WIDTH + 0.1 for end in ends)
        assert track.blocks[-1].title.splitlines()[1] == "one step: 50 ms to 900 ms"


def test_a_page_of_16_cores_100_000_steps_and_500_graphs_stays_small(tmp_path: Path) -> None:
    page = render(large_report(tmp_path), "html")
    assert len(page.encode()) < LARGEST
    assert "The record holds the later steps in groups" in page
    assert "Each block stands for up to" in page


def test_steps_share_points_with_their_fastest_and_slowest() -> None:
    seconds = [0.4] * 20_000
    seconds[12_345], seconds[700] = 4.0, 0.1
    long = dataclasses.replace(full_report(), steps={0: tuple(seconds)})
    page = render(long, "html")
    assert "the band reaches down to the fastest" in page
    (band,) = re.findall(r'<polygon class="band" points="([^"]*)"', page)
    heights = [float(point.split(",")[1]) for point in band.split()]
    assert (min(heights), max(heights)) == (0.0, 220.0)


def test_compilations_are_folded_by_line(recorded: Report) -> None:
    groups = cards.graph_groups(recorded)
    assert len(groups) < len(recorded.compilations)
    numbers = [new.number for group in groups for new in group.graphs]
    assert sorted(numbers) == list(range(1, len(recorded.compilations) + 1))
    seconds = [group.seconds for group in groups]
    assert seconds == sorted(seconds, reverse=True)


# In a browser

real = pytest.mark.skipif(browser.PROGRAM is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    one = browser.Browser()
    yield one
    one.close()


@pytest.fixture(scope="module")
def shown(recorded: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    reports = {
        "recorded": recorded, "empty": empty_report(), "evil": evil_page(), "full": full_report(),
        "large": large_report(folder),
    }  # fmt: skip
    urls = {}
    for name, report in reports.items():
        path = folder / f"{name}.html"
        path.write_text(render(report, "html"), encoding="utf-8")
        urls[name] = path.as_uri()
    return urls


def seen(one: browser.Browser) -> None:
    """The page was shown without a complaint, and asked for nothing but itself."""
    assert one.problems == []
    assert all(url.startswith("file:") or url == "about:blank" for url in one.requests)


@real
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["recorded", "empty", "evil", "full", "large"])
def test_the_page_fits_in_any_width_and_colour(
    chromium: browser.Browser, shown: dict[str, str], name: str, width: int, dark: bool
) -> None:
    chromium.open(shown[name], width=width, dark=dark)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    seen(chromium)
    light = (
        "getComputedStyle(document.body).%s.match(/\\d+/g).slice(0, 3).reduce((a, b) => +a + +b)"
    )
    paper, ink = chromium.run(light % "backgroundColor"), chromium.run(light % "color")
    assert (int(paper) < int(ink)) is dark
    assert abs(int(paper) - int(ink)) > 400


@real
def test_findings_can_be_searched_filtered_and_sorted(
    chromium: browser.Browser, shown: dict[str, str]
) -> None:
    chromium.open(shown["recorded"])
    count = "[...document.querySelectorAll('#cards > .line')].filter(c => !c.hidden).length"
    whole = chromium.run(count)
    change = (
        "(e => { e.value = '%s'; e.dispatchEvent(new Event('input', {bubbles: true})) })"
        "(document.getElementById('%s'))"
    )
    chromium.run(change % ("xla501 bincount", "finding-search"))
    assert 0 < chromium.run(count) < whole
    assert "of" in chromium.run("document.getElementById('finding-count').textContent")
    chromium.run(change % ("", "finding-search"))
    assert chromium.run(count) == whole
    chromium.run("document.querySelector('#finding-tools input[value=warning]').click()")
    others = "document.querySelectorAll('#cards > .line:not([data-severity=warning])').length"
    assert chromium.run(count) == chromium.run(others) < whole
    chromium.run("document.querySelector('#finding-tools input[value=warning]').click()")
    order = "[...document.querySelectorAll('#cards > .line')].map(c => c.dataset.place)"
    chromium.run(change % ("place", "finding-sort"))
    places = chromium.run(order)
    assert places == sorted(places)
    seen(chromium)


@real
def test_the_timeline_zooms_and_says_what_is_under_the_pointer(
    chromium: browser.Browser, shown: dict[str, str]
) -> None:
    chromium.open(shown["recorded"])
    box = "document.querySelector('#tracks svg').getAttribute('viewBox')"
    before = chromium.run(box)
    for button, narrower in (("in", True), ("in", True), ("right", True), ("all", False)):
        chromium.run(f"document.querySelector('[data-zoom={button}]').click()")
        assert (float(chromium.run(box).split()[2]) < float(before.split()[2])) is narrower
    assert chromium.run("document.querySelectorAll('#axis span').length") > 2
    chromium.run(
        "document.querySelector('#tracks rect.block').dispatchEvent("
        "new PointerEvent('pointermove', {bubbles: true}))"
    )
    assert "core 0" in chromium.run("document.getElementById('timeline-found').textContent")
    seen(chromium)


@real
def test_buttons_copy_and_links_open_the_page_of_a_rule(
    chromium: browser.Browser, shown: dict[str, str]
) -> None:
    chromium.open(shown["recorded"])
    first = "document.querySelector('#cards [data-copy]')"
    chromium.run(f"{first}.click()")
    done = f"new Promise(r => setTimeout(() => r({first}.textContent), 300))"
    assert chromium.run(done) == "copied"
    code = chromium.run("document.querySelector('a.code').textContent")
    opened = f"document.getElementById('{code}').open"
    assert chromium.run(opened) is False
    chromium.run("document.querySelector('a.code').click()")
    assert chromium.run(f"new Promise(r => setTimeout(() => r({opened}), 300))") is True
    seen(chromium)


@real
def test_without_javascript_everything_is_there_but_the_tools(
    chromium: browser.Browser, shown: dict[str, str]
) -> None:
    chromium.open(shown["recorded"], scripts=False)
    height = "(e => e ? e.getBoundingClientRect().height : -1)(document.querySelector('%s'))"
    assert chromium.run(height % "#finding-tools") == 0
    assert chromium.run(height % "#timeline-tools") == 0
    assert chromium.run(height % ".copies") == 0
    for part in ("#cards .finding", ".source", "#tracks svg", ".groups table"):
        assert chromium.run(height % part) > 10
    assert chromium.run("document.querySelectorAll('#tracks title').length") > 50
    seen(chromium)


def test_the_command_writes_the_page_with_source_and_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "page.html"
    assert main(["report", str(RECORDED), "--output-format", "html", "-o", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    for part in ('id="source"', 'id="timeline"', 'id="graphs"', 'id="cores"', 'id="findings"'):
        assert part in page
