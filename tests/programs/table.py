"""What is wrong with the results of real programs, and the document that shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from xladoctor.changes import Loss
from xladoctor.diagnosis import printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.programs.prepare import Program

HEAD = """\
# Real programs

Programs that others have written for XLA devices, made small (sizes and steps, nothing that they
are about), with data of their kind that is drawn here: each ran once on plain CPU without
xladoctor, and once under `xladoctor profile` on simulated cores. `make programs` makes
this page; `tests/programs/programs.toml` says which file at which commit, what was changed, and how
each finding was judged, by hand.

*Ends*: "well" is as on plain CPU. *Losses*: "equal" are those of plain CPU within 1 %; "own": each
core has its share of the data, and all losses are finite. *First finding* is what the report says
first; *judged* says of all findings whether they are true, and in a word why.

| program | cores | steps of a core | ends | losses | first finding | judged |
|---|---|---|---|---|---|---|
"""

#: What a line says of each kind of finding.
_SAID = re.compile(r"XLA\d{3}[^;|]*? (true:|false:|not judged)")

#: Whether it fails on plain CPU and on simulated cores, by how it is expected to end.
_FAILS = {
    "well": (False, False),
    "fails": (True, True),
    "refused": (None, True),
    "stopped": (False, True),
    "several": (False, True),
    "tpu": (True, False),
}
_ENDS = {
    "fails": "fails, as on plain CPU",
    "several": "fails, as on any several cores",
    "stopped": "stopped: it would hang on a device",
    "tpu": "well; plain CPU cannot run it",
}


def judgement(row: Program, item: Mapping[str, Any]) -> str | None:
    """What was said of a finding by hand; None if nobody has looked at it."""
    return row.judged.get(item["at"], row.judged.get(item["code"]))


def wrong(row: Program, result: Mapping[str, Any] | None) -> Iterator[str]:
    """Sentences on what is not as it should be; none for a program without a result."""
    if result is None:
        return
    plain, cores = result["plain"], result["cores"]
    fails = _FAILS[row.ends]
    for where, one, expected in (("plain CPU", plain, fails[0]), ("cores", cores, fails[1])):
        if expected is not None and bool(one["code"]) != expected:
            said = one.get("said", "").strip().splitlines()[-1:] or [""]
            yield f"ends with {one['code']} on {where}: {said[0][:200]}"
    if losses(row, result) == "differ":
        yield f"losses {_numbers(cores)} where plain CPU has {_numbers(plain)}"
    if len(set(cores["each"])) > 1 and row.ends != "stopped":
        yield f"the cores took {cores['each']} steps"
    first = next((item["code"] for item in cores["findings"]), "")
    if row.first != first:
        yield f"the first finding is {first or 'none'}, expected is {row.first or 'none'}"
    for item in cores["findings"]:
        said = judgement(row, item)
        if said is None:
            yield f"not judged: {item['at']}: {item.get('message', '')}"
        elif said.startswith("false"):
            yield f"{item['at']} is {said}"


def losses(row: Program, result: Mapping[str, Any]) -> str:
    """ "equal", "own", "none" or "differ"."""
    plain, cores = _losses(result["plain"]), _losses(result["cores"])
    if row.losses == "none" or row.ends not in ("well", "tpu"):
        return "none"
    if row.losses == "own":
        finite = all(abs(loss.value) < 1e9 for loss in cores)
        return "own" if cores and finite else "differ"
    agreement = printed.agreement(plain, cores)
    if agreement is None or agreement.agreeing != agreement.compared:
        return "differ"
    return "equal"


def _losses(one: Mapping[str, Any]) -> list[Loss]:
    return [Loss(label, value, 1e-4, at) for at, (label, value) in enumerate(one["losses"])]


def _numbers(one: Mapping[str, Any]) -> str:
    values = [f"{value:.4g}" for _, value in one["losses"]]
    return ", ".join(values[:6]) + (" ..." if len(values) > 6 else "") if values else "none"


def document(rows: Sequence[Program], results: Mapping[str, Any], before: str = "") -> str:
    """``docs/programs.md``: the programs that have a result.

    Args:
        rows: All programs.
        results: Those that were run.
        before: The document as it is: what is not run here keeps its line.
    """
    lines = {
        row.name: _line(row, results[row.name]) if row.name in results else _kept(row, before)
        for row in rows
    }
    known = [row for row in rows if lines[row.name]]
    said = [text for row in known for text in _SAID.findall(lines[row.name])]
    right = sum(
        (row.first or "none") == lines[row.name].split(" | ")[5][:6].strip() for row in known
    )
    missing = [row.name for row in rows if not lines[row.name]]
    left = f" Not run yet: {'; '.join(missing)}." if missing else ""
    foot = (
        f"\n{len(known)} of {len(rows)} programs; of {len(said)} kinds of findings in them "
        f"{sum(text == 'true:' for text in said)} are true; in {right} programs the first finding "
        f"is what an expert would say first.{left}\n"
    )
    return HEAD + "\n".join(lines[row.name] for row in known) + "\n" + foot


def _line(row: Program, result: Mapping[str, Any]) -> str:
    cores = result["cores"]
    first = next((f"{i['at']}" for i in cores["findings"]), "none")
    ends = _ENDS.get(row.ends, row.ends)
    if any(why.startswith("ends") for why in wrong(row, result)):
        ends = f"**with {cores['code']}**"
    steps = "-" if cores["steps"] is None else cores["steps"]
    number = row.cores or 1
    cells = [_name(row), number, steps, ends, losses(row, result), first, _judged(row, cores)]
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def _kept(row: Program, before: str) -> str:
    """The program's line in the document as it is; "" if it has none."""
    begins = f"| {_name(row)} |"
    return next((line for line in before.splitlines() if line.startswith(begins)), "")


def _name(row: Program) -> str:
    return f"{row.kind}: {row.name} (`{row.repository}`)"


def _judged(row: Program, cores: Mapping[str, Any]) -> str:
    said = {}
    for item in cores["findings"]:
        key = item["at"] if item["at"] in row.judged else item["code"]
        said[key] = judgement(row, item) or "not judged"
    return "; ".join(f"{key} {text}" for key, text in said.items()) or (
        row.remark or "nothing to say"
    )
