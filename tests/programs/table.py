"""What is wrong with the results of real programs, and the document that shows them."""

from __future__ import annotations

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

#: Whether it fails on plain CPU and on simulated cores, by how it is expected to end.
_FAILS = {
    "well": (False, False),
    "fails": (True, True),
    "refused": (None, True),
    "stopped": (False, True),
    "tpu": (True, False),
}
_ENDS = {
    "fails": "fails, as on plain CPU",
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
    if result["differ"]:
        yield f"{result['differ']} of {result['runs']} runs differ"
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


def document(rows: Sequence[Program], results: Mapping[str, Any]) -> str:
    """``docs/programs.md``: the programs that have a result."""
    lines = []
    for row in rows:
        result = results.get(row.name)
        if result is None:
            continue
        cores = result["cores"]
        first = next((f"{i['at']}" for i in cores["findings"]), "none")
        ends = _ENDS.get(row.ends, row.ends)
        if any(why.startswith("ends") for why in wrong(row, result)):
            ends = f"**with {cores['code']}**"
        name = f"{row.kind}: {row.name} (`{row.repository}`)"
        steps = "-" if cores["steps"] is None else cores["steps"]
        number = row.cores or 1
        cells = [name, number, steps, ends, losses(row, result), first, _judged(row, cores)]
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    known = [row for row in rows if row.name in results]
    items = [(row, item) for row in known for item in results[row.name]["cores"]["findings"]]
    true = sum((judgement(row, item) or "").startswith("true") for row, item in items)
    right = sum(
        row.first == next((i["code"] for i in results[row.name]["cores"]["findings"]), "")
        for row in known
    )
    missing = [row.name for row in rows if row.name not in results]
    left = f" Not run yet: {'; '.join(missing)}." if missing else ""
    foot = (
        f"\n{len(known)} of {len(rows)} programs; {true} of {len(items)} findings are "
        f"true; in {right} of them the first finding is what an expert would say first.{left}\n"
    )
    return HEAD + "\n".join(lines) + "\n" + foot


def _judged(row: Program, cores: Mapping[str, Any]) -> str:
    said = {}
    for item in cores["findings"]:
        key = item["at"] if item["at"] in row.judged else item["code"]
        said[key] = judgement(row, item) or "not judged"
    return "; ".join(f"{key} {text}" for key, text in said.items()) or (
        row.remark or "nothing to say"
    )
