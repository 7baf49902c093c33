"""What MkDocs puts into the site besides the files of docs/: rule pages, by family.

Links to files of the repository that are no pages lead to the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from xladoctor import catalogue

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {
    "0": "The linter itself",
    "1": "Host syncs",
    "2": "Dynamic shapes and recompilation",
    "3": "Step and optimizer protocol",
    "4": "Several cores and collectives",
    "5": "CPU fallbacks",
    "6": "Input pipeline",
    "7": "Precision, memory and environment",
    "8": "Old and removed API",
    "9": "Lightning, Accelerate, Trainer",
}
_BLOCK = re.compile(r"```py (bad|good|fixed)")
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the rules into the navigation, by family."""
    families: list[dict[str, Any]] = [{"All rules": "rules/index.md"}]
    for digit, name in FAMILIES.items():
        pages = _family(digit)
        if pages:
            families.append({name: [{f"{p.code} {p.name}": _path(p)} for p in pages]})
    nav = [entry for entry in config.nav or [] if "Rules" not in entry]
    config.nav = [*nav, {"Rules": families}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each rule, and one for all."""
    for page in catalogue.pages().values():
        files.append(File.generated(config, _path(page), content=_shown(page)))
    files.append(File.generated(config, "rules/index.md", content=_overview()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave the pages to the repository."""

    def target(found: re.Match[str]) -> str:
        link, anchor = found[1], found[2] or ""
        if "://" in link or link.startswith("mailto:"):
            return found[0]
        source = page.file.src_uri
        base = ROOT if source.startswith("rules/") else ROOT / "docs"
        path = (base / source).parent / link
        relative = Path(str(path.resolve())).relative_to(ROOT).as_posix()
        inside = relative.removeprefix("docs/") if relative.startswith("docs/") else relative
        inside = "rules/index.md" if inside == "rules/README.md" else inside
        if files.get_file_from_path(inside) is not None:
            up = "../" * source.count("/")
            return f"{up}{inside}{anchor if inside != 'rules/index.md' else ''}"
        kind = "tree" if (ROOT / relative).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{relative}{anchor}"

    return _LINK.sub(target, markdown)


def _family(digit: str) -> list[catalogue.Page]:
    return [page for page in catalogue.pages().values() if page.code[3] == digit]


def _path(page: catalogue.Page) -> str:
    return f"rules/{page.url.rpartition('/')[2]}"


def _shown(page: catalogue.Page) -> str:
    found_by = {"lint": "`lint`", "profile": "`profile`", "report": "`report`"}
    facts = [
        f"**{page.severity.value}**",
        "found by " + ", ".join(found_by[one] for one in page.found_by),
        {"none": "no fix", "safe": "safe fix", "unsafe": "unsafe fix"}[page.fix],
    ]
    text = _BLOCK.sub("```python", page.body)
    return f"# {page.code} {page.name}\n\n{page.summary}.\n\n{' · '.join(facts)}\n\n{text}"


def _overview() -> str:
    lines = ["# Rules", "", "One code is one problem, wherever it is found.", ""]
    for digit, name in FAMILIES.items():
        pages = _family(digit)
        if not pages:
            continue
        lines += [f"## {name}", "", "| code | name | what it finds | fix |", "|---|---|---|---|"]
        for page in pages:
            fix = "" if page.fix == "none" else page.fix
            link = f"[{page.code}]({_path(page).removeprefix('rules/')})"
            lines.append(f"| {link} | {page.name} | {page.summary} | {fix} |")
        lines.append("")
    return "\n".join(lines)
