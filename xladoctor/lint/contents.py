"""The files of a run, each read once: bytes, digest, text, and what linking asks of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from xladoctor.lint import library, sources
from xladoctor.lint.asked import in_short
from xladoctor.lint.looked import Looked, digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.lint.sources import Source

_ROOT = re.compile(
    r"torch_xla|\b(?:num_)?tpu_cores\b|tpu_num_cores|torch[._]tpu|torchax|tpu_dist"
    r"|\bxm\.(?:xla_device|optimizer_step|mark_step)\b|\bget_tpu_sampler\("
    r"|optimum\.(?:neuron|tpu)|neuronx_distributed|DistributedType\.(?:XLA|TPU)"
    r"|PJRT_DEVICE|XRT_TPU_CONFIG|XLA_USE_BF16|DOWNCAST_BF16|\bTPU_NAME\b|COLAB_TPU_ADDR"
    r"|\b(?:Single(?:Device)?)?(?:XLA|TPU)(?:FSDP|Spawn)?(?:Accelerator|Strategy)\b"
    r"|['\"](?:tpu|neuron)(?::\d+)?['\"]|\bdef _mp_fn\(|[=!]=\s*['\"](?:TPU|XLA|NEURON)['\"]"
    r"|\bhelp\s*=\s*['\"][^'\"\n]*\b(?:tpu|TPU)s?\b"
)
#: A module of which the name is written: ``importlib.import_module("models.baseline")``.
_LOADED = re.compile(r"""\bimport_module\(\s*["']([A-Za-z_][\w.]*)["']\s*\)""")
_SCRIPT = re.compile(r"""__name__\s*==\s*["']__main__""")
#: Parts of a module's name that are looked for.
_DEEPEST = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What linking asks of a file.

    Attributes:
        root: It names torch_xla, or a framework and TPUs.
        lines: How many lines it has.
        modules: What it imports, as its imports spell it, but for packages that the library knows.
        script: It is run by itself: ``if __name__ == "__main__":``.
    """

    root: bool
    lines: int
    modules: tuple[str, ...]
    script: bool = False

    @property
    def links(self) -> tuple[object, ...]:
        """What decides which files belong together, but for its lines."""
        return self.root, self.modules, self.script


class KeptFacts(Protocol):
    """Where facts of files are kept from run to run."""

    def facts(self, digest: str) -> Facts | None:
        """Those of a file with this content, None if they are not known."""

    def keep_facts(self, digest: str, facts: Facts) -> None:
        """Remember them."""


class Files:
    """Files by name, read when they are asked for.

    Attributes:
        problems: What broke while the facts of a file were found, by its name.

    Args:
        contents: What files hold that are not on the disk, or not yet.
        cache: Where facts of files are kept from run to run.
        looked: Remembers what is read, and knows what need not be.
    """

    def __init__(
        self,
        contents: Mapping[str, bytes] | None = None,
        cache: KeptFacts | None = None,
        looked: Looked | None = None,
    ) -> None:
        self._data: dict[str, bytes | None] = dict(contents or {})
        self._cache = cache
        self.looked = Looked(0) if looked is None else looked
        self._digests: dict[str, str] = {}
        self._sources: dict[str, Source] = {}
        self._facts: dict[str, Facts] = {}
        self.problems: dict[str, str] = {}

    def data(self, name: str) -> bytes | None:
        """The bytes of a file; None if it cannot be read."""
        if name not in self._data:
            try:
                self._data[name] = self.looked.read(name)
            except OSError:
                self._data[name] = None
        return self._data[name]

    def digest(self, name: str) -> str | None:
        """A digest of the bytes, which also tells notebooks from Python; None as for ``data``."""
        if name not in self._digests:
            known = self.looked.digest(name)
            if known is None and (data := self.data(name)) is not None:
                known = self.looked.digest(name) or digest_of(name, data)
            if known is None:
                return None
            self._digests[name] = known
        return self._digests[name]

    def source(self, name: str) -> Source:
        """The file as text; what is wrong with it is in its ``unreadable``."""
        if name not in self._sources:
            data = self.data(name)
            found = sources.read(Path(name)) if data is None else sources.from_bytes(data, name)
            self._sources[name] = found
        return self._sources[name]

    def facts(self, name: str) -> Facts:
        """What linking asks of the file."""
        if name not in self._facts:
            try:
                self._facts[name] = self._find_facts(name)
            except Exception as error:  # noqa: BLE001  (one file must not stop the others)
                self.problems[name] = in_short(error)
                self._facts[name] = Facts(False, 0, ())
        return self._facts[name]

    def known_facts(self, digest: str) -> Facts | None:
        """What linking asks of a file with that content, if an earlier run kept it."""
        return self._cache.facts(digest) if self._cache is not None else None

    def _find_facts(self, name: str) -> Facts:
        digest = self.digest(name)
        known = self.known_facts(digest) if digest else None
        if known is not None:
            return known
        found = _facts_of(self.source(name).text)
        if self._cache is not None and digest:
            self._cache.keep_facts(digest, found)
        return found


@functools.lru_cache(maxsize=256)
def _facts_of(text: str) -> Facts:
    """The facts of a text; an editor asks for those of many files again after each key."""
    root = _ROOT.search(text) is not None
    modules = imported_modules(text)
    known_ones = library.answered() if modules else frozenset()
    asked = tuple(item for item in modules if item.partition(".")[0] not in known_ones)
    return Facts(root, text.count("\n") + 1, asked, _SCRIPT.search(text) is not None)


#: Comments and texts, in which nothing is imported, and what may begin an import.
_SCANNED = re.compile(
    r"""\#[^\r\n]*|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"""
    r'''|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'''
    r"""|'[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'|"[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*\""""
    r"""|[\r\n;:][ \t\f]*(?P<import>(?:import|from)\b"""
    r"""(?:[^\r\n;(\\#]|\\(?:\r\n|[\r\n]))*(?:\([^)]*\))?)""",
    re.DOTALL,
)


def _imports_of(text: str) -> ast.Module | sources.Unreadable:
    """What Python's parser makes of the imports of a text: a small part of what it would have to.

    Where they cannot be told from what is around them, it parses all.
    """
    found = [item["import"] for item in _SCANNED.finditer(f"\n{text}") if item["import"]]
    tree = sources.parsed("\n".join(found))
    if isinstance(tree, ast.Module) and all(
        isinstance(item, ast.Import | ast.ImportFrom) for item in tree.body
    ):
        return tree
    return sources.parse(text)


def imported_modules(text: str) -> list[str]:
    """What a text imports, as its imports spell it; names after ``from`` may be modules too."""
    tree = _imports_of(text) if "import" in text else None
    if not isinstance(tree, ast.Module):
        return []
    found: dict[str, None] = {}
    for _, node in sources.statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")[:_DEEPEST]
                found.update(dict.fromkeys(".".join(parts[: n + 1]) for n in range(len(parts))))
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module.count(".") > _DEEPEST:
                continue
            found[module] = None  # "." too: names may be those of the package itself
            joint = "" if module.endswith(".") else "."
            found.update({f"{module}{joint}{a.name}": None for a in node.names if a.name != "*"})
    found.update(dict.fromkeys(_LOADED.findall(text)))
    return list(found)
