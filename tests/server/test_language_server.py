"""The language server, spoken to by a real client (that of pygls) over its pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pygls")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from xladoctor import catalogue
from xladoctor.cli.app import main

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer):
    device = xm.xla_device()
    total = "\U0001f600"; losses = 0.0
    for x in pl.MpDeviceLoader(loader, device):
        loss = model(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        smile = "\U0001f600"; losses += loss.item()
    return total, losses
"""
CLEAN = "x = 1\n"


class Editor(LanguageClient):
    """What an editor does: it keeps the last diagnostics of each text."""

    def __init__(self) -> None:
        super().__init__("editor", "1")
        self.shown: dict[str, list[types.Diagnostic]] = {}
        self.said: list[str] = []
        self.news = asyncio.Event()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _shown(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = list(params.diagnostics)
            self.news.set()

        @self.feature(types.WINDOW_SHOW_MESSAGE)
        def _said(params: types.ShowMessageParams) -> None:
            self.said.append(params.message)
            self.news.set()

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)

    def codes(self, uri: str) -> set[Any]:
        return {one.code for one in self.shown.get(uri, ())}

    def open(self, path: Path, text: str) -> str:
        uri = path.as_uri()
        item = types.TextDocumentItem(uri, "python", 1, text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, version: int, text: str) -> None:
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=version, uri=uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def actions(
        self, uri: str, span: types.Range, only: list[str] | None = None
    ) -> list[types.CodeAction]:
        found = await self.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(uri),
                span,
                types.CodeActionContext([], only=only),  # type: ignore[arg-type]
            )
        )
        return list(found or [])


def session(folder: Path, does: Callable[[Editor], Awaitable[None]]) -> None:
    """Start a server, greet it, do something, and take leave; it must end with code 0."""

    async def run() -> None:
        editor = Editor()
        await editor.start_io(sys.executable, "-m", "xladoctor", "server", cwd=folder)
        try:
            greeting = types.InitializeParams(
                capabilities=types.ClientCapabilities(), root_uri=folder.as_uri()
            )
            await asyncio.wait_for(editor.initialize_async(greeting), 60)
            editor.initialized(types.InitializedParams())
            await does(editor)
            await asyncio.wait_for(editor.shutdown_async(None), 60)
            editor.exit(None)
            process = editor._server
            assert process is not None
            assert await asyncio.wait_for(process.wait(), 60) == 0
        finally:
            await editor.stop()

    asyncio.run(run())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def applied(text: str, edits: list[types.TextEdit]) -> str:
    """A text after edits in UTF-16, as an editor makes them."""
    lines = [*text.splitlines(keepends=True), ""]

    def offset(position: types.Position) -> int:
        before = "".join(lines[: position.line])
        units = lines[position.line].encode("utf-16-le")[: 2 * position.character]
        return len(before) + len(units.decode("utf-16-le"))

    for edit in sorted(edits, key=lambda one: offset(one.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def linted(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    path = folder / "said.py"
    path.write_text(text, encoding="utf-8")
    main(["lint", str(path), "--output-format", "json", "--no-cache"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_editor_shows_what_lint_says_at_the_same_places(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = linted(TRAIN, here, capsys)
    assert "XLA101" in {item["code"] for item in expected}

    async def look(editor: Editor) -> None:
        uri = editor.open(here / "train.py", TRAIN)
        await editor.until(lambda: editor.codes(uri))
        shown = editor.shown[uri]
        assert [one.code for one in shown] == [item["code"] for item in expected]
        for one, item in zip(shown, expected, strict=True):
            row = TRAIN.splitlines()[item["location"]["row"] - 1]
            units = len(row[: item["location"]["column"] - 1].encode("utf-16-le")) // 2
            assert one.range.start == types.Position(item["location"]["row"] - 1, units)
            assert one.message.startswith(item["message"])
            assert one.source == "xladoctor"
            assert one.code_description is not None
            assert one.code_description.href == catalogue.page(item["code"]).url
        (read,) = [one for one in shown if one.code == "XLA101"]
        assert read.range.start.character > TRAIN.splitlines()[11].index("loss.item")  # surrogates

    session(here, look)


def test_typing_changes_what_is_shown_and_closing_takes_it_away(here: Path) -> None:
    async def type_on(editor: Editor) -> None:
        uri = editor.open(here / "train.py", CLEAN)
        await editor.until(lambda: uri in editor.shown)
        assert editor.shown[uri] == []
        for version in range(2, 12):  # faster than anyone can lint
            editor.change(uri, version, TRAIN + f"# {version}\n")
        await editor.until(lambda: "XLA101" in editor.codes(uri))
        editor.change(uri, 12, TRAIN.replace("loss.item()", "1.0"))
        await editor.until(lambda: "XLA101" not in editor.codes(uri))
        editor.change(uri, 13, TRAIN + "def (:\n")
        await editor.until(lambda: "XLA001" in editor.codes(uri))
        known = types.TextDocumentIdentifier(uri)
        editor.text_document_did_close(types.DidCloseTextDocumentParams(known))
        await editor.until(lambda: editor.shown[uri] == [])

    session(here, type_on)


def test_what_another_open_file_holds_counts_before_it_is_saved(here: Path) -> None:
    calls = TRAIN.replace("losses += loss.item()", "log(loss)")
    calls = "from helper import log\n" + calls

    async def both(editor: Editor) -> None:
        helper = editor.open(here / "helper.py", "def log(value):\n    return None\n")
        train = editor.open(here / "train.py", calls)
        await editor.until(lambda: train in editor.shown and helper in editor.shown)
        assert "XLA101" not in editor.codes(helper)
        editor.change(helper, 2, "def log(value):\n    return value.item()\n")
        await editor.until(lambda: "XLA101" in editor.codes(helper))
        (read,) = [one for one in editor.shown[helper] if one.code == "XLA101"]
        editor.change(train, 2, calls.replace("log(loss)", "pass"))
        await editor.until(lambda: "XLA101" not in editor.codes(helper))
        assert (read.range.start.line, read.range.start.character) == (1, 11)

    session(here, both)


def test_hover_shows_the_page_of_the_rule(here: Path) -> None:
    async def look(editor: Editor) -> None:
        uri = editor.open(here / "train.py", TRAIN)
        await editor.until(lambda: "XLA101" in editor.codes(uri))
        (read,) = [one for one in editor.shown[uri] if one.code == "XLA101"]
        known = types.TextDocumentIdentifier(uri)
        shown = await editor.text_document_hover_async(types.HoverParams(known, read.range.start))
        assert shown is not None
        assert isinstance(shown.contents, types.MarkupContent)
        assert shown.contents.kind == types.MarkupKind.Markdown
        page = catalogue.page("XLA101")
        assert page.body.strip()[:200] in shown.contents.value
        assert page.url in shown.contents.value
        nothing = types.HoverParams(known, types.Position(0, 0))
        assert await editor.text_document_hover_async(nothing) is None

    session(here, look)


def test_quick_fixes_and_suppressions_do_what_they_say(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "sample_runs" / "ct_slices" / "as_found.py").read_text(encoding="utf-8")
    before = linted(text, here, capsys)
    fixable = next(item for item in before if item["fix"] is not None)

    async def mend(editor: Editor) -> None:
        uri = editor.open(here / "train.py", text)
        await editor.until(lambda: editor.codes(uri))
        row = fixable["location"]["row"] - 1
        span = types.Range(types.Position(row, 0), types.Position(row, 0))
        span.end.character = 1000
        actions = await editor.actions(uri, span)
        titles = [action.title for action in actions]
        fix = next(a for a in actions if a.title.startswith(fixable["fix"]["message"]))
        assert fix.is_preferred is (fixable["fix"]["applicability"] == "safe")
        assert fix.edit is not None
        assert fix.edit.changes is not None
        after = linted(applied(text, list(fix.edit.changes[uri])), here, capsys)
        assert len(after) < len(before)
        silence = next(a for a in actions if a.title.startswith("Suppress"))
        assert f"Suppress {fixable['code']} on this line" in titles
        assert silence.edit is not None
        assert silence.edit.changes is not None
        silenced = linted(applied(text, list(silence.edit.changes[uri])), here, capsys)
        assert len(silenced) == len(before) - sum(
            item["code"] in silence.title and item["location"]["row"] == row + 1 for item in before
        )

    session(here, mend)


def test_fix_all_gives_what_lint_fix_writes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "sample_runs" / "ct_slices" / "as_found.py").read_text(encoding="utf-8")
    path = here / "fixed.py"
    path.write_text(text, encoding="utf-8")
    main(["lint", "--fix", str(path)])
    capsys.readouterr()
    expected = path.read_text(encoding="utf-8")
    assert expected != text

    async def save(editor: Editor) -> None:
        uri = editor.open(here / "train.py", text)
        await editor.until(lambda: editor.codes(uri))
        nowhere = types.Range(types.Position(0, 0), types.Position(0, 0))
        (action,) = await editor.actions(uri, nowhere, ["source.fixAll"])
        assert action.edit is not None
        assert action.edit.changes is not None
        assert applied(text, list(action.edit.changes[uri])) == expected
        assert await editor.actions(uri, nowhere, ["refactor"]) == []

    session(here, save)


def test_a_notebook_has_its_findings_in_its_cells(here: Path) -> None:
    notebook = (here / "train.ipynb").as_uri()
    head, _, body = TRAIN.partition("\n\n\n")
    cells = {"markdown": "# %title\nNot code: loss.item()\n", "imports": head + "\n", "train": body}
    uris = {name: f"vscode-notebook-cell:{notebook[7:]}#{name}" for name in cells}

    async def look(editor: Editor) -> None:
        kinds = {"markdown": types.NotebookCellKind.Markup}
        editor.notebook_document_did_open(
            types.DidOpenNotebookDocumentParams(
                types.NotebookDocument(
                    notebook, "jupyter-notebook", 1,
                    [types.NotebookCell(kinds.get(name, types.NotebookCellKind.Code), uris[name])
                     for name in cells],
                ),
                [types.TextDocumentItem(uris[name], "python", 1, text)
                 for name, text in cells.items()],
            )
        )  # fmt: skip
        await editor.until(lambda: "XLA101" in editor.codes(uris["train"]))
        assert editor.shown[uris["markdown"]] == editor.shown[uris["imports"]] == []
        (read,) = [one for one in editor.shown[uris["train"]] if one.code == "XLA101"]
        assert body.splitlines()[read.range.start.line].endswith("loss.item()")
        actions = await editor.actions(uris["train"], read.range)
        silence = next(a for a in actions if a.title == "Suppress XLA101 on this line")
        assert silence.edit is not None
        assert silence.edit.changes is not None
        quiet = applied(body, list(silence.edit.changes[uris["train"]]))
        changed = types.NotebookDocumentCellContentChanges(
            types.VersionedTextDocumentIdentifier(version=2, uri=uris["train"]),
            [types.TextDocumentContentChangeWholeDocument(quiet)],
        )
        editor.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, notebook),
                types.NotebookDocumentChangeEvent(
                    cells=types.NotebookDocumentCellChanges(text_content=[changed])
                ),
            )
        )
        await editor.until(lambda: "XLA101" not in editor.codes(uris["train"]))
        editor.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(notebook),
                [types.TextDocumentIdentifier(uri) for uri in uris.values()],
            )
        )
        await editor.until(lambda: not any(editor.shown.values()))

    session(here, look)


def test_the_settings_of_the_project_count_and_broken_ones_are_told_once(here: Path) -> None:
    async def look(editor: Editor) -> None:
        (here / "xladoctor.toml").write_text('ignore = ["XLA101"]\n')
        uri = editor.open(here / "train.py", TRAIN)
        await editor.until(lambda: uri in editor.shown)
        assert "XLA101" not in editor.codes(uri)
        (here / "xladoctor.toml").write_text("ignore = 7\n")
        editor.change(uri, 2, TRAIN + "\n")
        await editor.until(lambda: editor.said)
        editor.change(uri, 3, TRAIN + "\n\n")
        (here / "xladoctor.toml").write_text("")
        editor.change(uri, 4, TRAIN)
        await editor.until(lambda: "XLA101" in editor.codes(uri))
        (said,) = editor.said
        assert "xladoctor.toml" in said

    session(here, look)


def test_a_file_that_the_settings_exclude_has_no_findings(here: Path) -> None:
    async def look(editor: Editor) -> None:
        (here / "xladoctor.toml").write_text('exclude = ["generated"]\n')
        (here / "generated").mkdir()
        inside = editor.open(here / "generated" / "train.py", TRAIN)
        outside = editor.open(here / "train.py", TRAIN)
        await editor.until(lambda: editor.codes(outside) and inside in editor.shown)
        assert editor.shown[inside] == []

    session(here, look)


def message(content: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)


GREETING = message(
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}'
)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00\xff garbage without an end",
        b"Content-Length: many\r\n\r\n{}",
        b"Content-Length: 1000\r\n\r\ncut",
        b"Content-Length: -5\r\n\r\n",
        message(b"not JSON"),
        message(b"[1, 2"),
        message(b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}'),
        GREETING[:40],
        GREETING + message(b'{"jsonrpc": "2.0", "method": "textDocument/didOpen"}'),
        GREETING + message(b'{"jsonrpc": "2.0", "id": 2, "method": "textDocument/hover", '
                           b'"params": {"textDocument": {"uri": "file:///no.py"}, '
                           b'"position": {"line": 9999999, "character": -3}}}'),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_client_that_sends_garbage_and_is_gone_leaves_nothing_behind(
    here: Path, sent: bytes
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "server"],
        input=sent, cwd=here, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"xladoctor-error" not in done.stderr


def test_after_garbage_the_server_still_answers(here: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "xladoctor", "server"],
        cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(message(b"not JSON") + b"noise\r\n" + message(b"{}") + GREETING)
        server.stdin.flush()
        text = b""
        while b'"capabilities"' not in text:
            line = server.stdout.readline()
            assert line
            text += line
            if line == b"\r\n":
                size = int(text.rsplit(b"Content-Length: ", 1)[1].split(b"\r\n")[0])
                text += server.stdout.read(size)
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()
        assert server.wait(60) == 0


def test_without_pygls_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    monkeypatch.delitem(sys.modules, "xladoctor.server.serve", raising=False)
    assert main(["server"]) == 2
    assert 'pip install "xladoctor[server]"' in capsys.readouterr().err
