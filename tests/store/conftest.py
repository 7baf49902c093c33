"""Storages that speak S3 and Google's own language, started by the tests."""

from __future__ import annotations

import importlib.util
import os
import socket

import pytest

_NEEDED = ("moto", "flask", "flask_cors", "s3fs")
_NEEDED_FOR_GS = ("gcp_storage_emulator", "gcsfs")


def _skip_without(needed):
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (the dev extra brings it)")


@pytest.fixture(scope="session")
def s3_server():
    """The endpoint of a real HTTP server that speaks S3, with its own credentials."""
    _skip_without(_NEEDED)
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """An empty bucket's address; the environment has what is needed to reach it."""
    import boto3
    import fsspec

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key-of-the-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"runs-{os.urandom(4).hex()}"
    boto3.client("s3").create_bucket(Bucket=name)
    fsspec.filesystem("s3").clear_instance_cache()
    yield f"s3://{name}"
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture(scope="session")
def gs_server():
    """The endpoint of a real HTTP server that speaks the JSON API of Google Cloud Storage."""
    _skip_without(_NEEDED_FOR_GS)
    from gcp_storage_emulator.server import create_server

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = create_server("127.0.0.1", port, in_memory=True)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def gs_bucket(gs_server, monkeypatch):
    """An empty bucket's address; the environment says where the server is."""
    import urllib.request

    import fsspec

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gs_server)
    name = f"runs-{os.urandom(4).hex()}"
    request = urllib.request.Request(
        f"{gs_server}/storage/v1/b?project=test",
        f'{{"name": "{name}"}}'.encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request):
        pass
    fsspec.filesystem("gs").clear_instance_cache()
    yield f"gs://{name}"
    fsspec.filesystem("gs").clear_instance_cache()
