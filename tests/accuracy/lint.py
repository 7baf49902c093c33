"""Precision and recall of the linter on labelled places in public files.

    python tests/accuracy/lint.py --cases lint.jsonl --files FOLDER

``lint.jsonl`` has one labelled place a line: ``repo``, ``commit``, ``path``, ``line``,
``alt_lines`` (places that count as the same), ``label`` (problem, trap, ambiguous), ``family``,
``sev`` and, if it is to be counted by that too, the ``style`` of the file. FOLDER holds the files
as ``owner+name/commit/path``; they belong to others and are never committed. The files of a
commit are linted together. A line of a notebook
counts through its code cells, with one empty line between two.

A problem is found when a finding of one of its family's codes stands on its line; a trap is a false
alarm when such a finding stands on its line. Findings on lines without a label count for neither:
some are true and nobody labelled them.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xladoctor.lint import run
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.launches import Launches
from xladoctor.lint.looked import Looked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.findings import Finding

#: Families of names and arguments that are gone, or never were: known from tables alone.
REMOVED = frozenset(
    {
        *("removed-api", "removed-argument", "deprecated-api", "legacy-api", "nonexistent-api"),
        *("env-removed", "accelerate-removed", "lightning-removed-api", "lightning-removed-arg"),
    }
)
#: Which codes may find which family of labels. A family without a rule yet counts as missed.
CODES = {
    "host-sync": (
        *("XLA101", "XLA102", "XLA103", "XLA104", "XLA105", "XLA106", "XLA109", "XLA113", "XLA114"),
        "XLA903",
    ),
    "host-sync-eval": (
        *("XLA101", "XLA102", "XLA103", "XLA104", "XLA105", "XLA106", "XLA109", "XLA113", "XLA114"),
        "XLA903",
    ),
    "host-sync-log": (
        *("XLA101", "XLA102", "XLA103", "XLA104", "XLA105", "XLA106", "XLA109", "XLA113", "XLA114"),
        "XLA903",
    ),
    "dynamic-shape": ("XLA201", "XLA202", "XLA204", "XLA206", "XLA209"),
    "last-batch-shape": ("XLA203", "XLA905"),
    "missing-barrier": ("XLA301", "XLA319"),
    "graph-cut": ("XLA319",),
    "mid-step-cut": ("XLA319",),
    "missing-optimizer-step": ("XLA302",),
    "print-all-ranks": ("XLA401",),
    "sampler": ("XLA402", "XLA434"),
    "sampler-epoch": ("XLA403",),
    "nprocs": ("XLA404", "XLA801"),
    "hardcoded-cores": ("XLA432",),
    "collective-divergent": ("XLA405", "XLA420"),
    "clip-before-reduce": ("XLA303",),
    "data-dep-control": ("XLA104",),
    "device-before-spawn": ("XLA407",),
    "device-index": ("XLA416",),
    "double-step": ("XLA302", "XLA304", "XLA904"),
    "env-var": ("XLA715", "XLA701", "XLA429"),
    "lightning-removed-api": ("XLA801", "XLA901", "XLA910"),
    "lightning-removed-arg": ("XLA901",),
    "nonexistent-api": ("XLA801", "XLA804", "XLA904"),
    "loader-arguments": ("XLA409", "XLA416", "XLA801"),
    "pin-memory": ("XLA718",),
    "rank-divergent-graph": ("XLA421", "XLA425"),
    "spawn-signature": ("XLA408",),
    "closure-signature": ("XLA107", "XLA417"),
    "tied-weights": ("XLA306",),
    "save-all-ranks": ("XLA406",),
    "download-race": ("XLA406",),
    "h2d-in-loop": ("XLA603", "XLA604", "XLA605"),
    "no-device-loader": ("XLA504", "XLA603", "XLA605"),
    "bad-timing": ("XLA112",),
    "master-only-eval": ("XLA418",),
    "rank-divergent-state": ("XLA419", "XLA420", "XLA451"),
    "undetached-accumulate": ("XLA315",),
    "optimizer-before-to": ("XLA305",),
    "loader-reuse": ("XLA415",),
    "cuda-api": ("XLA706", "XLA707"),
    "redundant-barrier": ("XLA304",),
    "unreduced-metric": ("XLA427",),
    "replica-init": ("XLA426",),
    "save-device-tensors": ("XLA721", "XLA437"),
    "device-string": ("XLA416", "XLA706", "XLA901"),
    "env-removed": ("XLA701", "XLA716"),
    "removed-api": ("XLA801", "XLA901", "XLA905"),
    "deprecated-api": ("XLA801", "XLA802"),
    "legacy-api": ("XLA716", "XLA801", "XLA802", "XLA804", "XLA417"),
    "function-as-condition": ("XLA439",),
    "single-core": ("XLA449",),
    "never-spawned": ("XLA449",),
    "gc-in-step": ("XLA111",),
    "shared-model": ("XLA424",),
    "sharded-reduction": ("XLA309", "XLA436"),
    "unused-reduction": ("XLA308",),
    "spmd-process-api": ("XLA428", "XLA429"),
    "spmd-unsharded": ("XLA429", "XLA445"),
    "missing-no-grad": ("XLA320",),
    "torch-checkpoint": ("XLA312", "XLA905"),
    "nccl": ("XLA708",),
    "data-parallel": ("XLA709",),
    "gradient-scaler": ("XLA704",),
    "compile-backend": ("XLA314",),
    "abandoned-loader": ("XLA608", "XLA415"),
    "random-geometry": ("XLA208",),
    "load-onto-device": ("XLA720",),
    "collective-in-step": ("XLA423",),
    "cpu-fallback": ("XLA501",),
    "debug-check": ("XLA106",),
    "debug-env": ("XLA714", "XLA715"),
    "device-loader-attribute": ("XLA422",),
    "float64": ("XLA705",),
    "gradient-alias": ("XLA307",),
    "index-by-device": ("XLA108",),
    "mesh-mismatch": ("XLA444",),
    "lightning-manual": ("XLA319", "XLA407", "XLA902"),
    "loader-workers": ("XLA606",),
    "random-branch": ("XLA207",),
    "removed-argument": ("XLA803", "XLA801", "XLA713", "XLA901", "XLA905", "XLA906"),
    "varying-index": ("XLA205", "XLA208"),
    "equal-random": ("XLA434",),
    "syncing-optimizer": ("XLA110",),
    "cuda-autocast": ("XLA703", "XLA713"),
    "trainer-arguments": ("XLA905", "XLA312"),
    "trainer-fsdp": ("XLA905",),
    "accelerate-removed": ("XLA801", "XLA906"),
    "lightning-prepare-data-state": ("XLA910",),
    "bf16-accumulator": ("XLA712",),
    "huge-graph": ("XLA212", "XLA216"),
    "parallel-loader": ("XLA801", "XLA810"),
    "loader-protocol": ("XLA801",),
    "split-per-core": ("XLA448",),
    "lost-updates": ("XLA732",),
    "mixed-devices": ("XLA417", "XLA504"),
    "other-bug": ("XLA416", "XLA417", "XLA427", "XLA437", "XLA451", "XLA452", "XLA708", "XLA801"),
    # No rule finds these yet.
    "rendezvous-replicas": (),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--verbose", action="store_true", help="show every miss and false alarm")
    options = parser.parse_args()
    tally = count(options.cases, options.files, verbose=options.verbose)
    show(tally.families)
    if tally.styles:
        print()
        show(tally.styles, "by style")
    print(f"codes on lines without a label {tally.unlabelled}")


class Tally(NamedTuple):
    """What became of the labels: outcomes by family and by style, and findings beside them."""

    families: collections.Counter[tuple[str, str]]
    styles: collections.Counter[tuple[str, str]]
    unlabelled: int
    files: int


def count(cases_file: Path, files: Path, *, verbose: bool = False) -> Tally:
    """Lint the files of all labels, and see which labels are told."""
    cases = [json.loads(line) for line in cases_file.read_text().splitlines() if line]
    by_file = collections.defaultdict(list)
    for case in cases:
        by_file[case["repo"], case["commit"], case["path"]].append(case)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    by_style: collections.Counter[tuple[str, str]] = collections.Counter()
    unlabelled = 0
    for (repo, commit, path), labelled in sorted(by_file.items()):
        folder = files / repo.replace("/", "+") / commit
        found = findings_by_line(folder, path)
        for case in labelled:
            outcomes = judge(case, found, verbose)
            counts.update((case["family"], outcome) for outcome in outcomes)
            if "style" in case:
                by_style.update((case["style"], outcome) for outcome in outcomes)
        known = {line for case in labelled for line in (case["line"], *case["alt_lines"])}
        others = {line: codes for line, codes in found.items() if line not in known}
        unlabelled += sum(map(len, others.values()))
        for line, codes in sorted(others.items()) if verbose else ():
            print(f"without a label {path}:{line} {' '.join(sorted(codes))}")
    return Tally(counts, by_style, unlabelled, len(by_file))


@functools.cache
def linted(folder: Path) -> dict[Path, tuple[Finding, ...]]:
    """What is found in the files of a commit that are there, linted together.

    The project's settings say what it is started on, as for the command, if they are there.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix in {".py", ".ipynb"})
    started = Launches(Looked(0), str(folder)).of(str(folder))
    results = run.lint_files(files, run.Plan(LintOptions(started=started)), jobs=1)
    return {Path(item.filename): item.result.findings for item in results}


def findings_by_line(folder: Path, path: str) -> dict[int, set[str]]:
    """Line (of the joined code cells, for a notebook) to the codes reported there."""
    lines: dict[int, set[str]] = collections.defaultdict(set)
    file = folder / path
    first_rows = cell_offsets(file) if file.suffix == ".ipynb" else {}
    for finding in linted(folder)[file]:
        place = finding.locations[0]
        offset = first_rows.get(place.cell, 0) if place.cell is not None else 0
        for row in range(place.row, (place.end_row or place.row) + 1):
            lines[row + offset].add(finding.code)
    return lines


def cell_offsets(file: Path) -> dict[int, int]:
    """Index of a code cell to the number of lines before it, one between two cells."""
    offsets, rows = {}, 0
    for index, cell in enumerate(json.loads(file.read_text(encoding="utf-8-sig"))["cells"]):
        if cell["cell_type"] == "code":
            offsets[index] = rows
            rows += len("".join(cell["source"]).split("\n")) + 1
    return offsets


def judge(case: dict[str, Any], found: dict[int, set[str]], verbose: bool) -> tuple[str, ...]:
    """What to count for a label: its outcome, and that again with the severity."""
    codes = CODES.get(case["family"], ())
    lines = [case["line"], *case["alt_lines"]]
    hit = any(found.get(line, set()) & set(codes) for line in lines)
    weight = case.get("sev") or ""
    outcome = {
        ("problem", True): "found",
        ("problem", False): f"missed-{weight}",
        ("trap", True): "false-alarm",
        ("trap", False): "kept-silent",
    }.get((case["label"], hit))
    if outcome is None:
        return ()
    if verbose and outcome not in ("found", "kept-silent"):
        print(f"{outcome:14} {case['family']:20} {case['path']}:{case['line']}  {case['note']}")
    return (outcome, f"found-{weight}") if outcome == "found" else (outcome,)


SEVERITIES = ("high", "medium", "low", "info")


def show(counts: collections.Counter[tuple[str, str]], head: str = "found of labelled") -> None:
    """Found of labelled problems by family and severity, traps that were taken for problems."""
    families = sorted({family for family, _ in counts})
    heads = "".join(f"{weight:>9}" for weight in SEVERITIES)
    print(f"{head:24}{heads}{'all':>9}{'recall':>9}{'alarms':>8}{'precision':>11}")
    for family in (*families, "all"):
        rows = families if family == "all" else [family]
        cells = [found_of(counts, rows, (weight,)) for weight in SEVERITIES]
        found, labelled = found_of(counts, rows, (*SEVERITIES, ""))
        alarms = sum(counts[row, "false-alarm"] for row in rows)
        columns = "".join(f"{_of(cell):>9}" for cell in (*cells, (found, labelled)))
        recall, precision = _rate(found, labelled), _rate(found, found + alarms)
        print(f"{family:24}{columns}{recall:>9}{alarms:>8}{precision:>11}")
    sums = totals(counts)
    weighty = [high + medium for high, medium in zip(sums["high"], sums["medium"], strict=True)]
    print()
    print(f"precision {_share(*sums['told'])}")
    print(f"recall of high and medium {_share(*weighty)}")
    print(f"false alarms on labelled traps {_share(*sums['traps'])}")


def totals(counts: collections.Counter[tuple[str, str]]) -> dict[str, list[int]]:
    """Pairs of a part and its whole: found problems, those of removed names, true, alarmed.

    ``named`` is of high and medium, ``told`` how many of the labels that were told are problems,
    ``traps`` how many traps were told.
    """
    families = sorted({family for family, _ in counts})
    sums = {weight: list(found_of(counts, families, (weight,))) for weight in SEVERITIES}
    sums["named"] = list(found_of(counts, REMOVED, ("high", "medium")))
    found, _ = found_of(counts, families, (*SEVERITIES, ""))
    alarms = sum(counts[family, "false-alarm"] for family in families)
    silent = sum(counts[family, "kept-silent"] for family in families)
    return sums | {"told": [found, found + alarms], "traps": [alarms, alarms + silent]}


def found_of(
    counts: collections.Counter[tuple[str, str]], families: Iterable[str], weights: Iterable[str]
) -> tuple[int, int]:
    """How many problems of families and severities were found, and how many there are."""
    pairs = [(family, weight) for family in families for weight in weights]
    found = sum(counts[family, f"found-{weight}"] for family, weight in pairs)
    return found, found + sum(counts[family, f"missed-{weight}"] for family, weight in pairs)


def _of(cell: tuple[int, int]) -> str:
    return f"{cell[0]}/{cell[1]}" if cell[1] else "-"


def _rate(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole}" + (f" ({part / whole:.3f})" if whole else "")


if __name__ == "__main__":
    main()
