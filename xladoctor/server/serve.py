"""The language server itself: requests in, diagnostics, pages and fixes out."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from xladoctor import __version__
from xladoctor.errors import XladoctorError
from xladoctor.findings import Applicability
from xladoctor.server import documents, spoken
from xladoctor.server.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pygls.workspace import TextDocument

    from xladoctor.findings import Finding

#: Seconds without a change after which a text is linted.
QUIET = 0.1
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[types.NotebookDocumentFilterWithNotebook(notebook="jupyter-notebook")]
)
_FIX_ALL = "source.fixAll.xladoctor"
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """What was found in a document, and in what state it was."""

    document: Document
    uris: tuple[str, ...]
    others: dict[str, bytes]
    findings: tuple[Finding, ...]


class Server(LanguageServer):
    """Lints what an editor has open. One thread lints, so that typing is never held up."""

    def __init__(self) -> None:
        super().__init__("xladoctor", __version__, notebook_document_sync=_NOTEBOOKS)
        self._linting = concurrent.futures.ThreadPoolExecutor(1, "lint")
        self._known: dict[str, _Known] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()

    # -- what is open ------------------------------------------------------------------------
    def opened(self, uri: str) -> tuple[Document, tuple[str, ...]] | None:
        """A document as it is now, with the URIs of its texts; None if it is not open."""
        notebook = self.workspace.notebook_documents.get(uri)
        texts = self.workspace.text_documents
        if notebook is None:
            if uri not in texts:
                return None
            return Document(_path(uri), (texts[uri].source,)), (uri,)
        cells = [cell for cell in notebook.cells if cell.document in texts]
        return (
            Document(
                _path(uri),
                tuple(texts[cell.document].source for cell in cells),
                tuple(cell.kind == types.NotebookCellKind.Code for cell in cells),
            ),
            tuple(cell.document for cell in cells),
        )

    def others(self, uri: str) -> dict[str, bytes]:
        """What other open Python files hold, saved or not, of those that may belong together."""
        return {
            str(_path(other)): Document(_path(other), (text.source,)).data
            for other, text in self._linked(uri)
        }

    def _linked(self, uri: str) -> Iterator[tuple[str, TextDocument]]:
        """Open files of which one names the other, as an import must."""
        own = self.opened(uri)
        for other, text in self.workspace.text_documents.items():
            if own is None or other == uri or not other.startswith("file:"):
                continue
            if not other.endswith(".py"):
                continue
            named = any(_module(other) in one for one in own[0].texts)
            if named or _module(uri) in text.source:
                yield other, text

    def owner(self, uri: str) -> str:
        """The notebook that a cell belongs to, or the document itself."""
        for notebook, document in self.workspace.notebook_documents.items():
            if any(cell.document == uri for cell in document.cells):
                return str(notebook)
        return uri

    # -- linting -------------------------------------------------------------------------------
    def changed(self, uri: str, quiet: float = QUIET) -> None:
        """Lint a document when nothing more is typed for a moment (seconds)."""
        before = self._waiting.pop(uri, None)
        if before is not None:
            before.cancel()
        self._waiting[uri] = asyncio.get_running_loop().create_task(self._lint_soon(uri, quiet))

    async def _lint_soon(self, uri: str, quiet: float) -> None:
        await asyncio.sleep(quiet)
        await self.lint(uri)
        for other, _ in list(self._linked(uri)):
            await self.lint(other)

    async def lint(self, uri: str) -> _Known | None:
        """Lint a document as it is now, and tell the editor; None if it is not open."""
        now = self.opened(uri)
        if now is None:
            return None
        (document, uris), others = now, self.others(uri)
        known = self._known.get(uri)
        if known is None or (known.document, known.uris, known.others) != (document, uris, others):
            try:
                findings = await asyncio.get_running_loop().run_in_executor(
                    self._linting, documents.lint, document, others
                )
            except XladoctorError as error:
                self._tell(str(error))
                findings = ()
            if self.opened(uri) != now:
                return None  # it has changed meanwhile; the change lints it again
            shown = tuple(one for one in findings if _stands(one, uris))
            known = self._known[uri] = _Known(document, uris, others, shown)
        self._publish(known)
        return known

    def _tell(self, message: str) -> None:
        """Say once that the settings cannot be used."""
        if message not in self._told:
            self._told.add(message)
            self.window_show_message(
                types.ShowMessageParams(types.MessageType.Error, f"xladoctor: {message}")
            )

    def _publish(self, known: _Known) -> None:
        places = self.places(known)
        for index, uri in enumerate(known.uris):
            diagnostics = [
                spoken.diagnostic(finding, places[index], known.uris)
                for finding in known.findings
                if (finding.locations[0].cell or 0) == index
            ]
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics)
            )

    def places(self, known: _Known) -> list[spoken.Places]:
        """How places in each text of a document are told the client."""
        codec = self.workspace.position_codec
        return [spoken.Places(text, codec) for text in known.document.texts]

    def closed(self, uri: str, uris: Sequence[str]) -> None:
        """Forget a document, and take its diagnostics away."""
        self._known.pop(uri, None)
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        for one in uris:
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri=one, diagnostics=[])
            )

    # -- answers -------------------------------------------------------------------------------
    async def found_at(
        self, uri: str, span: types.Range
    ) -> tuple[_Known, list[tuple[Finding, types.Range]]] | None:
        """What is found in a range of a text, as it is now."""
        known = await self.lint(self.owner(uri))
        if known is None or uri not in known.uris:
            return None
        index = known.uris.index(uri)
        places = self.places(known)[index]
        spans = [
            (finding, places.range(finding.locations[0]))
            for finding in known.findings
            if (finding.locations[0].cell or 0) == index
        ]
        return known, [(finding, at) for finding, at in spans if _meet(at, span)]

    async def actions(self, uri: str, span: types.Range) -> list[types.CodeAction]:
        """The fixes and suppressions for what is found in a range."""
        found = await self.found_at(uri, span)
        if found is None:
            return []
        known, here = found
        places = self.places(known)
        index = known.uris.index(uri)
        actions = []
        for finding, _ in here:
            told = [spoken.diagnostic(finding, places[index], known.uris)]
            if finding.fix is not None:
                safe = finding.fix.applicability is Applicability.SAFE
                edits = spoken.by_cell(finding.fix.edits, places)
                actions.append(
                    types.CodeAction(
                        f"{finding.fix.message} ({finding.code}{'' if safe else ', unsafe'})",
                        kind=types.CodeActionKind.QuickFix,
                        diagnostics=told,
                        is_preferred=safe,
                        edit=_edit({known.uris[cell]: those for cell, those in edits.items()}),
                    )
                )
            silenced = documents.suppressed(known.document, finding)
            if silenced is not None:
                actions.append(
                    types.CodeAction(
                        f"Suppress {finding.code} on this line",
                        kind=types.CodeActionKind.QuickFix,
                        diagnostics=told,
                        edit=_edit({uri: [places[index].becomes(silenced)]}),
                    )
                )
        return actions

    async def fix_all(self, uri: str) -> types.CodeAction | None:
        """All safe fixes of a document as one action; None if there are none."""
        known = await self.lint(self.owner(uri))
        if known is None:
            return None
        texts = await asyncio.get_running_loop().run_in_executor(
            self._linting, documents.fixed, known.document, self.others(uri)
        )
        if texts is None:
            return None
        edits = {
            one: [places.becomes(after)]
            for one, places, before, after in zip(
                known.uris, self.places(known), known.document.texts, texts, strict=True
            )
            if before != after
        }
        return types.CodeAction("Make all safe fixes", kind=_FIX_ALL, edit=_edit(edits))


def _edit(changes: dict[str, list[types.TextEdit]]) -> types.WorkspaceEdit:
    return types.WorkspaceEdit(changes=changes)


def _stands(finding: Finding, uris: Sequence[str]) -> bool:
    """Whether a finding has a line in one of the texts."""
    return bool(finding.locations) and (finding.locations[0].cell or 0) < len(uris)


def _meet(one: types.Range, other: types.Range) -> bool:
    def key(position: types.Position) -> tuple[int, int]:
        return position.line, position.character

    return key(one.start) <= key(other.end) and key(other.start) <= key(one.end)


def _module(uri: str) -> str:
    """The last part of the name by which a file is imported."""
    path = _path(uri)
    return path.parent.name if path.stem == "__init__" else path.stem


def _path(uri: str) -> Path:
    """Where a document stands; one that was never saved, in the current folder."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(url2pathname(unquote(parsed.path)))
    name = Path(unquote(parsed.path)).name or "untitled"
    return Path.cwd() / (name if name.endswith((".py", ".ipynb")) else f"{name}.py")


def made() -> Server:
    """A server with all that it can do."""
    server = Server()
    _follow(server)
    _follow_notebooks(server)
    _answer(server)
    return server


def _follow(server: Server) -> None:
    """Lint texts as they are opened, changed and closed."""

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def _open(params: types.DidOpenTextDocumentParams) -> None:
        server.changed(params.text_document.uri, quiet=0.0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def _change(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def _save(params: types.DidSaveTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri, [params.text_document.uri])


def _follow_notebooks(server: Server) -> None:
    """The same for notebooks."""

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    async def _open_notebook(params: types.DidOpenNotebookDocumentParams) -> None:
        server.changed(params.notebook_document.uri, quiet=0.0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def _change_notebook(params: types.DidChangeNotebookDocumentParams) -> None:
        server.changed(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def _close_notebook(params: types.DidCloseNotebookDocumentParams) -> None:
        cells = [cell.uri for cell in params.cell_text_documents]
        server.closed(params.notebook_document.uri, cells)


def _answer(server: Server) -> None:
    """Pages on hover, and fixes."""

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def _hover(params: types.HoverParams) -> types.Hover | None:
        at = types.Range(params.position, params.position)
        found = await server.found_at(params.text_document.uri, at)
        if found is None or not found[1]:
            return None
        return spoken.hover([finding for finding, _ in found[1]], found[1][0][1])

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, _FIX_ALL]),
    )
    async def _actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        only = params.context.only
        actions = []
        if only is None or types.CodeActionKind.QuickFix in only:
            actions += await server.actions(params.text_document.uri, params.range)
        if only is not None and any(_FIX_ALL.startswith(kind) for kind in only):
            whole = await server.fix_all(params.text_document.uri)
            actions += [whole] if whole is not None else []
        return actions


def serve(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Speak to an editor until it says exit, or is gone.

    Args:
        stdin: Where its messages come from.
        stdout: Where ours go; nothing else is written there.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="xladoctor: %(message)s")
    server = made()
    with contextlib.suppress(BrokenPipeError, ConnectionError, asyncio.IncompleteReadError):
        server.start_io(stdin, stdout)
    return 0
