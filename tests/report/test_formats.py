from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
from xml.etree import ElementTree as ET

import pytest

from xladoctor import catalogue
from xladoctor.errors import UsageError
from xladoctor.findings import Finding, Location, Severity
from xladoctor.report import FORMATS, render
from xladoctor.results import (
    Cause,
    Compilation,
    CoreSummary,
    Metric,
    MetricsReport,
    Report,
    Summary,
    TimeParts,
    to_json,
)

EVIL = "<script>alert('x')</script> & \"quotes\" [red]markup[/red] `tick` | pipe"
PLACE = Location("train.py", 52, function="train")
TIME = TimeParts(10.0, 2.0, 5.0, 1.0, 1.5, 0.4, 0.05, 0.05)


def full_report() -> Report:
    """An invented report in which everything is there."""
    finding = Finding(
        "XLA101", "host-sync-in-step", Severity.WARNING, "a device value is read",
        suggestion="read it later", locations=(PLACE, Location("train.py", 60)), count=960,
        seconds=1.5, cores=(0, 1), confirmed_by=("runtime", "lint"),
    )  # fmt: skip
    failed = Finding("XLA411", "core-failed", Severity.ERROR, "core 1 failed", cores=(1,))
    return Report(
        summary=Summary(
            "The host waits.",
            "It reads.",
            "Read later.",
            2,
            120,
            4,
            1,
            {"aten::bincount": 56},
            960,
            TIME,
        ),
        cores=(
            CoreSummary(0, 4, 120, 0.41, 480, 28),
            CoreSummary(1, 5, 119, None, 480, 28),
        ),
        compilations=(
            Compilation((0, 1), 1, 2.1, "hash", PLACE, Cause("first-graph"), False),
            Compilation(
                (1,),
                9,
                None,
                None,
                None,
                Cause("input-shape", "x: f32[16,24] -> f32[10,24]", Location("train.py", 38)),
                True,
            ),
        ),
        metrics=(
            MetricsReport(
                "m.txt", 0, 20, {"CompileTime": Metric(4, 8.1, "s", {"50": 2.0})}, {"A": 1}
            ),
        ),
        findings=(failed, finding),
        about={"Command": "python train.py"},
        notes=("a note",),
        steps={0: (2.5, *[0.4] * 119), 1: (2.4, *[0.5] * 118)},
    )


def empty_report() -> Report:
    return Report(Summary("Nothing was recorded.", "No process.", "Check."))


def test_an_answer_that_cannot_tell_is_not_shown_as_a_good_one() -> None:
    sound = empty_report()
    unsure = dataclasses.replace(
        sound, summary=dataclasses.replace(sound.summary, conclusive=False)
    )
    for report, tone in ((sound, "good"), (unsure, "info")):
        assert f'class="card answer {tone}"' in render(report, "html")
        assert json.loads(render(report, "json"))["summary"]["conclusive"] is (report is sound)
    green, blue = (render(report, "full", color=True) for report in (sound, unsure))
    assert green != blue


def evil_report() -> Report:
    """Hostile text in every place that a program's own text can reach."""
    place = Location(EVIL + ".py", 1, function=EVIL)
    return Report(
        Summary(EVIL, EVIL, EVIL, fallbacks={EVIL: 1}, seconds=TIME),
        compilations=(Compilation((0,), 1, 1.0, EVIL, place, Cause("unknown", EVIL, place)),),
        findings=(Finding("XLA101", EVIL, Severity.WARNING, EVIL + "\nnext\x00", EVIL, (place,)),),
        about={EVIL: EVIL},
        notes=(EVIL,),
        steps={0: (1.0, 2.0)},
    )


ALL = [full_report(), empty_report(), evil_report()]


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("report", ALL, ids=["full", "empty", "evil"])
def test_every_format_shows_every_report(report: Report, output_format: str) -> None:
    text = render(report, output_format)
    assert text.endswith("\n")
    assert render(report, output_format) == text


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="choose from full, concise, json"):
        render(empty_report(), "pdf")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("report", ALL, ids=["full", "empty", "evil"])
def test_no_line_of_the_terminal_is_too_long(report: Report, width: int) -> None:
    lines = render(report, width=width).splitlines()
    assert max(len(line) for line in lines) <= width


def test_the_terminal_says_it_all_without_colour_and_the_same_with() -> None:
    plain = render(full_report(), width=100)
    for part in ("The host waits.", "960x", "train.py:52 in train", "train.py:60", "read it later",
                 "1 after warm-up", "aten::bincount 56", "f32[10,24]", "a note"):  # fmt: skip
        assert part in plain
    assert "\x1b" not in plain
    colored = render(full_report(), width=100, color=True)
    assert "\x1b[" in colored
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_the_bar_of_the_terminal_shows_each_part_in_its_share() -> None:
    lines = render(full_report(), width=100).splitlines()
    bar = lines[lines.index("Where the time went") + 1].strip()
    assert len(bar) == 96
    assert bar.count("█") == 48
    assert bar.count("▓") == 19


def test_what_other_holds_is_shown_by_its_name() -> None:
    full = full_report()
    time = TimeParts(10.0, execute=4.0, trace=1.0, other=5.0)
    within = {"core_wait": 4.5, "transfer": 0.5}
    summary = dataclasses.replace(full.summary, seconds=time, within_other=within)
    lines = render(dataclasses.replace(full, summary=summary)).splitlines()
    start = lines.index("Where the time went")
    shown = [line.split(maxsplit=1)[1].rsplit(maxsplit=1) for line in lines[start + 2 : start + 6]]
    assert [(" ".join(name.split()), share) for name, share in shown] == [
        ("running on the device 4.0 s", "40%"), ("Python and tracing 1.0 s", "10%"),
        ("waiting for other cores 4.5 s", "45%"), ("sending data to the device 500 ms", "5%"),
    ]  # fmt: skip


def test_a_compilation_says_what_ended_its_graph() -> None:
    full = full_report()
    first = dataclasses.replace(
        full.compilations[0], trigger="step", via="lightning.optimizer_step"
    )
    report = dataclasses.replace(full, compilations=(first,))
    assert "step end in" in render(report)
    assert "step end in lightning.optimizer_step" in render(report, "html")
    assert json.loads(render(report, "json"))["compilations"][0]["trigger"] == "step"


def test_text_of_the_program_is_never_markup_for_the_terminal() -> None:
    assert "[red]markup[/red]" in render(evil_report(), width=120).replace("\n", " ")


def test_concise_is_one_line_a_finding_and_the_verdict() -> None:
    assert render(full_report(), "concise").splitlines() == [
        "-: XLA411 core 1 failed",
        "train.py:52: XLA101 [960x, 1.5 s] a device value is read (see train.py:60)",
        "verdict: The host waits.",
    ]


def test_json_has_the_keys_that_the_contract_fixes() -> None:
    data = json.loads(render(full_report(), "json"))
    assert data == to_json(full_report())
    assert data["schema_version"] == 1
    assert set(data["summary"]) >= {
        "verdict", "why", "next", "cores", "steps", "compilations", "compilations_after_warmup",
        "fallbacks", "host_syncs", "seconds",
    }  # fmt: skip
    assert set(data["cores"][0]) >= {"core", "compilations", "steps", "step_seconds_median"}
    assert set(data["compilations"][0]) >= {
        "cores",
        "step",
        "seconds",
        "graph",
        "location",
        "cause",
    }
    assert set(data["findings"][1]) >= {
        "code", "name", "severity", "message", "suggestion", "locations", "count", "seconds",
        "cores", "confirmed_by",
    }  # fmt: skip
    assert data["metrics"][0]["metrics"]["CompileTime"]["percentiles"] == {"50": 2.0}


def test_what_was_not_measured_is_null_and_never_0() -> None:
    summary = json.loads(render(empty_report(), "json"))["summary"]
    for key in (
        "cores",
        "steps",
        "compilations",
        "compilations_after_warmup",
        "fallbacks",
        "host_syncs",
    ):
        assert summary[key] is None
    assert set(summary["seconds"].values()) == {None}
    assert "not measured" in render(empty_report())


class _Tags(html.parser.HTMLParser):
    """Collects tags, and fails on what does not close."""

    VOID = frozenset({"meta", "br", "img", "hr", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def tags(page: str) -> _Tags:
    parser = _Tags()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("report", ALL, ids=["full", "empty", "evil"])
def test_the_page_is_one_sound_file_that_loads_and_runs_nothing(report: Report) -> None:
    text = render(report, "html")
    page = tags(text)
    names = {name for name, _ in page.seen}
    assert not names & {"link", "img", "iframe", "object", "embed", "form", "base"}
    # One script, ours, without a source; the page's own policy names it by its hash.
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [attributes for name, attributes in page.seen if name == "script"] == [{}]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] or "" for _, a in page.seen if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    for name, attributes in page.seen:
        assert not {"src", "srcset", "action"} & set(attributes), name
        assert not [key for key in attributes if key.startswith("on")]
    style = "".join(page.text)
    assert "url(" not in style
    assert "@import" not in style


def test_the_page_shows_hostile_text_as_text() -> None:
    page = tags(render(evil_report(), "html"))
    assert "".join(page.text).count(EVIL) >= 6


def test_every_code_of_the_page_leads_to_its_text_which_stands_there_once() -> None:
    twice = dataclasses.replace(full_report(), findings=full_report().findings * 2)
    page = tags(render(twice, "html"))
    links = [a["href"] for name, a in page.seen if name == "a" and a.get("class") == "code"]
    targets = [a["id"] for name, a in page.seen if name == "details" and "id" in a]
    documented = [a["href"] for name, a in page.seen if name == "a" and a.get("class") == "doc"]
    assert sorted(documented) == sorted(catalogue.page(target).url for target in targets)
    assert sorted(targets) == sorted({"XLA101", "XLA411"} & set(catalogue.pages()))
    assert sorted(links) == sorted(f"#{target}" for target in targets * 2)
    assert targets


def test_the_page_draws_a_line_a_core_and_a_mark_a_compiling_step() -> None:
    page = tags(render(full_report(), "html"))
    lines = [attributes for name, attributes in page.seen if name == "polyline"]
    assert len(lines) == 2
    assert len((lines[0]["points"] or "").split()) == 120
    assert len([1 for name, _ in page.seen if name == "path"]) == 2


def test_a_long_run_is_drawn_with_few_points_and_keeps_its_slow_steps() -> None:
    seconds = [0.4] * 20_000
    seconds[12_345] = 4.0
    long = dataclasses.replace(full_report(), steps={0: tuple(seconds)})
    page = tags(render(long, "html"))
    (line,) = [attributes for name, attributes in page.seen if name == "polyline"]
    points = [float(point.split(",")[1]) for point in (line["points"] or "").split()]
    assert len(points) <= 450
    assert min(points) == 0.0  # the top of the chart: the slow step


def test_github_annotations_escape_what_would_end_them() -> None:
    lines = render(evil_report(), "github").splitlines()
    assert len(lines) == 2
    assert "\\nnext\\x00%0AInstead: " in lines[0]
    assert lines[0].startswith("::warning title=xladoctor (XLA101),file=<script>")
    first = render(full_report(), "github").splitlines()[1]
    assert first.startswith(
        "::warning title=xladoctor (XLA101),file=train.py,line=52::train.py:52: "
    )


@pytest.mark.parametrize(
    ("report", "failures"), [(full_report(), 2), (empty_report(), 0), (evil_report(), 1)]
)
def test_junit_is_sound_xml_with_one_case_a_finding(report: Report, failures: int) -> None:
    root = ET.fromstring(render(report, "junit").encode())
    cases = list(root.iter("testcase"))
    assert len(cases) == max(1, failures) == int(root.get("tests", ""))
    assert len(list(root.iter("failure"))) == failures == int(root.get("failures", ""))


def test_sarif_names_rules_places_and_a_fingerprint_that_outlives_line_numbers() -> None:
    def results(report: Report) -> list[dict]:
        (run,) = json.loads(render(report, "sarif"))["runs"]
        for result in run["results"]:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        return run["results"]

    failed, read = results(full_report())
    assert failed["level"] == "error"
    assert read["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 52},
    }
    moved = dataclasses.replace(
        full_report().findings[1], locations=(dataclasses.replace(PLACE, row=70),), count=3
    )
    (again,) = results(dataclasses.replace(full_report(), findings=(moved,)))
    assert (
        again["partialFingerprints"] == read["partialFingerprints"] != failed["partialFingerprints"]
    )


def test_markdown_shows_program_text_as_text() -> None:
    text = render(evil_report(), "markdown")
    outside_code = re.sub(r"(`{1,2})(?!`).+?(?<!`)\1(?!`)", "", text.replace("\\`", ""))
    assert "script" in outside_code
    assert re.search(r"(?<!\\)[<\[]", outside_code) is None
