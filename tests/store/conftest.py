"""A storage that speaks S3, and hosts that write their parts to it."""

from __future__ import annotations

import importlib.util
import os

import pytest

_NEEDED = ("moto", "flask", "flask_cors", "s3fs")


@pytest.fixture(scope="session")
def s3_server():
    """The endpoint of a real HTTP server that speaks S3, with its own credentials."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (the dev extra brings it)")
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
