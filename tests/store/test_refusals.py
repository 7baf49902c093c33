"""What real clients make of storages that refuse, throttle, break down or never answer."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import threading
import types

import pytest

from xladoctor.cli.app import main
from xladoctor.errors import StorageError
from xladoctor.store.locations import located

SECRET = "the-secret-of-the-test"


class _Server(http.server.ThreadingHTTPServer):
    """Answers everything with one status, or nothing with status 0."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, kind, status, code):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.body, self.type = (
            (f'{{"error": {{"code": {status}, "message": "{code}: {SECRET}"}}}}', "json")
            if kind == "gs"
            else (f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>", "xml")
        )
        self.over = threading.Event()
        self.requests = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.server.requests += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.server.status:
            self.server.over.wait(60)
            return
        body = self.server.body.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", f"application/{self.server.type}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


for _verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(_Handler, f"do_{_verb}", _Handler._answer)


@pytest.fixture
def storage(monkeypatch):
    """Starts a storage of a kind with one answer; gives the server."""
    with contextlib.ExitStack() as stack:

        def start(kind, status, code=""):
            pytest.importorskip({"gs": "gcsfs", "s3": "s3fs"}[kind])
            server = stack.enter_context(_Server(kind, status, code))
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            stack.callback(server.over.set)
            url = f"http://127.0.0.1:{server.server_port}"
            if not status:  # only here is nothing waited for
                monkeypatch.setattr("xladoctor.store.locations._READ", 0.3)
            _point(monkeypatch, kind, url)
            stack.callback(_forget, kind)
            return server

        yield start


def _point(monkeypatch, kind, url):
    """Let the client of a kind ask there, without its waits between tries."""
    monkeypatch.setattr("xladoctor.store.locations._WAITS", ())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key-of-the-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    if kind == "gs":

        async def no_sleep(_):
            await asyncio.sleep(0)

        monkeypatch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=no_sleep))
    _forget(kind)


def _forget(kind):
    import fsspec

    fsspec.filesystem(kind).clear_instance_cache()


@pytest.mark.parametrize(
    ("kind", "status", "code", "said", "passing"),
    [
        ("gs", 403, "Forbidden", "access is refused", False),
        ("gs", 401, "Anonymous caller", "access is refused", False),
        ("gs", 429, "rateLimitExceeded", "asks for fewer requests", True),
        ("gs", 503, "backendError", "out of order for now", True),
        ("gs", 0, "", "did not answer in time", True),
        ("s3", 403, "AccessDenied", "access is refused", False),
        ("s3", 403, "InvalidAccessKeyId", "access is refused", False),
        ("s3", 503, "SlowDown", "asks for fewer requests", True),
        ("s3", 500, "InternalError", "out of order for now", True),
        ("s3", 0, "", "did not answer in time", True),
    ],
)
def test_one_sentence_with_the_reason_and_nothing_secret(
    storage, kind, status, code, said, passing
):
    storage(kind, status, code)
    place = located(f"{kind}://bucket/run")
    for ask in (place.sizes, lambda: place.write("a", b"x")):
        with pytest.raises(StorageError, match=said) as raised:
            ask()
        assert raised.value.passing is passing
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None


def test_what_is_refused_is_asked_once(storage, monkeypatch):
    server = storage("gs", 403, "Forbidden")
    monkeypatch.setattr("xladoctor.store.locations._WAITS", (0.0, 0.0))
    with pytest.raises(StorageError):
        located("gs://bucket/run").sizes()
    assert server.requests == 1


def test_a_storage_that_throttles_is_not_asked_the_more_for_it(storage, monkeypatch):
    """Once the client has tried for long, nothing of ours tries the whole of it again."""
    server = storage("s3", 503, "SlowDown")
    monkeypatch.setattr("xladoctor.store.locations._WAITS", (0.0,) * 50)
    monkeypatch.setattr("xladoctor.store.locations._PATIENCE", 0.0)
    with pytest.raises(StorageError):
        located("s3://bucket/run").sizes()
    assert server.requests <= 4


@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_a_report_says_it_in_one_line(storage, capsys, kind):
    storage(kind, 403, "AccessDenied")
    assert main(["report", f"{kind}://bucket/run"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert err[0].startswith(f"xladoctor: {kind}://bucket/run: this cannot be read: access is")
