"""Places for runs: folders of this machine, and what fsspec knows (``s3``, ``gs``, ``memory``).

Credentials are the libraries' own business (environment, instance, configuration files): none is
taken from an address, and none is ever written or shown.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xladoctor import files
from xladoctor.errors import MissingExtra, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Result = TypeVar("_Result")

_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)

#: Scheme to the package that fsspec needs for it, and the extra of ours that brings it.
_SCHEMES: dict[str, tuple[str, str]] = {
    "memory": ("fsspec", "pod"),
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gs"),
}

#: Seconds before each further try of what a storage did not do at once.
_WAITS = (0.5, 1.0, 2.0, 4.0)

#: Seconds after which nothing is tried again: the libraries of storages have tried by then too.
_PATIENCE = 20.0

#: Seconds in which a storage has to take a connection, and to let something arrive from it.
_CONNECT, _READ = 10.0, 15.0

#: How often s3fs tries what its own library has tried five times.
_S3_TRIES = 2

#: Bytes of a file of a run that are read as a whole.
_LARGEST = 256 * 2**20

#: Parts of the names of errors, and what they mean; the first that fits counts.
_REASONS = (
    (
        ("NoCredentials", "PartialCredentials", "DefaultCredentials", "RefreshError"),
        "no credentials were found: log in as its own tools want it",
    ),
    (
        ("Permission", "AccessDenied", "Forbidden", "Unauthorized", "InvalidAccessKey"),
        "access is refused: check the credentials and rights that this machine has",
    ),
    (
        ("FileNotFound", "NoSuchBucket", "NoSuchKey", "NotFound"),
        "there is no such bucket or folder",
    ),
    (("SlowDown", "Throttl", "TooManyRequests", "RateLimit"), "it asks for fewer requests"),
    (("Timeout", "TimedOut"), "it did not answer in time"),
    (("InternalError", "Unavailable", "InternalServer"), "it is out of order for now"),
    (
        ("Endpoint", "Connect", "Connection", "DNS", "gaierror"),
        "it cannot be reached: check the network and the endpoint",
    ),
)
#: Of these, what another try cannot change.
_FINAL = (
    "Permission", "AccessDenied", "Forbidden", "Unauthorized", "NoCredentials", "FileNotFound",
    "NoSuch",
)  # fmt: skip

#: What numbers of HTTP mean, as gcsfs gives them (``HttpError.code``).
_CODES = {
    401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 408: "Timeout", 429: "TooManyRequests",
    500: "InternalServer", 503: "Unavailable", 504: "Timeout",
}  # fmt: skip

#: Those who log what fails; it is said in our own words, without addresses and headers.
_LOGGERS = ("fsspec", "s3fs", "gcsfs", "google", "aiobotocore", "botocore")


class Location(Protocol):
    """A folder at some place, with names below it as paths with slashes.

    Attributes:
        url: The address, as it may be shown.
        wanted: Which run of several in it is meant (what follows ``#``); None for the newest.
    """

    url: str
    wanted: str | None

    def sizes(self, below: str = "") -> dict[str, int]:
        """All files below a folder of it, and their sizes; raises :class:`StorageError`."""
        ...

    def read(self, name: str) -> bytes:
        """The whole of a file; raises :class:`StorageError`."""
        ...

    def read_many(self, names: Sequence[str]) -> dict[str, bytes | StorageError]:
        """The whole of small files, or why one cannot be read; raises if none can be asked for."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place as a whole; raises :class:`StorageError`."""
        ...

    def local(self, names: Sequence[str], folder: Path) -> Path:
        """Bring files to this machine, below ``folder`` or another; says below which."""
        ...


def is_address(name: str) -> bool:
    """Whether a name is an address (``s3://bucket/run``) and no path."""
    return _ADDRESS.match(name) is not None


def located(address: str | Path) -> Location:
    """The place that an address or a path names.

    Raises:
        UsageError: It is no address that xladoctor knows.
        MissingExtra: What it needs is not installed.
        StorageError: It cannot be opened.
    """
    match = _ADDRESS.match(str(address))
    if match is None:
        return Folder(Path(address))
    scheme, rest = match["scheme"], match["rest"]
    if "@" in rest.partition("/")[0]:
        raise UsageError(
            f"{scheme}://...: credentials do not belong into an address: give them as the "
            "storage's own tools want them (environment, configuration file)"
        )
    rest, _, wanted = rest.partition("#")
    if not rest.strip("/"):
        raise UsageError(f"{scheme}://{rest}: name a folder in it, as {scheme}://bucket/run")
    if scheme == "file":
        if rest.partition("/")[0] not in ("", "localhost"):
            raise UsageError(f"{address}: a folder is named from the top, as file:///shared/run")
        return Folder(Path("/" + rest.partition("/")[2]), wanted or None)
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in ("file", *_SCHEMES))
        raise UsageError(f"{scheme}://: xladoctor knows {known} and paths")
    return Stored(scheme, rest.rstrip("/"), wanted or None)


class Folder:
    """A folder of this machine or of a shared file system."""

    def __init__(self, path: Path, wanted: str | None = None) -> None:
        self.path = path
        self.url = str(path)
        self.wanted = wanted

    def sizes(self, below: str = "") -> dict[str, int]:
        """All files below a folder of it, and their sizes."""
        top = self.path / below
        found: dict[str, int] = {}

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise StorageError(f"{self.url}: this cannot be read ({error.strerror})") from None

        for folder, _, names in os.walk(top, onerror=failed):
            for name in names:
                file = Path(folder, name)
                try:
                    found[file.relative_to(self.path).as_posix()] = file.stat().st_size
                except OSError:
                    continue  # replaced or taken away meanwhile
        return found

    def read(self, name: str) -> bytes:
        """The whole of a file."""
        try:
            return files.read_bytes(self.path / name, _LARGEST)
        except OSError as error:
            raise StorageError(
                f"{self.path / name}: this cannot be read ({error.strerror})"
            ) from None

    def read_many(self, names: Sequence[str]) -> dict[str, bytes | StorageError]:
        """The whole of small files, or why one cannot be read."""
        found: dict[str, bytes | StorageError] = {}
        for name in names:
            try:
                found[name] = self.read(name)
            except StorageError as error:  # noqa: PERF203  (one that fails is not all of them)
                found[name] = error
        return found

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place as a whole."""
        file = self.path / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            beside = file.with_name(f"{file.name}.{os.getpid()}.new")
            beside.write_bytes(data)
            beside.replace(file)
        except OSError as error:
            raise StorageError(f"{self.url}: this cannot be written ({error.strerror})") from None

    def local(self, names: Sequence[str], folder: Path) -> Path:
        """The files are here."""
        del names, folder
        return self.path


class Stored:
    """A folder in what fsspec knows."""

    def __init__(self, scheme: str, path: str, wanted: str | None) -> None:
        self.url = f"{scheme}://{path}"
        self.wanted = wanted
        self._fs = _filesystem(scheme)
        self._root = str(self._fs._strip_protocol(self.url)).rstrip("/")  # noqa: SLF001

    def sizes(self, below: str = "") -> dict[str, int]:
        """All files below a folder of it, and their sizes."""
        top = posixpath.join(self._root, below).rstrip("/")

        def ask() -> dict[str, Any]:
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(top, detail=True)
            return found

        nothing: dict[str, Any] = {}
        found = self._asked("read", ask, missing=nothing)
        cut = len(self._root) + 1
        return {name[cut:]: int(entry.get("size") or 0) for name, entry in found.items()}

    def read(self, name: str) -> bytes:
        """The whole of a file."""
        path = posixpath.join(self._root, name)
        data: bytes = self._asked("read", lambda: self._fs.cat_file(path))
        return data

    def read_many(self, names: Sequence[str]) -> dict[str, bytes | StorageError]:
        """The whole of small files, many at a time, or why one cannot be read.

        Raises:
            StorageError: None can be read now.
        """
        if not names:
            return {}
        paths = [posixpath.join(self._root, name) for name in names]

        def ask() -> dict[str, Any]:
            found: dict[str, Any] = self._fs.cat(paths, on_error="return")
            errors = [one for one in found.values() if isinstance(one, Exception)]
            if len(errors) == len(paths) > 1 and not _is_final(errors[0]):
                raise errors[0]  # the storage, not one of the files
            return found

        found = self._asked("read", ask)
        return {
            name: StorageError(_said(f"{self.url}/{name}", "read", data))
            if isinstance(data := found[path], Exception)
            else data
            for name, path in zip(names, paths, strict=True)
        }

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place as a whole: that is how objects appear."""
        path = posixpath.join(self._root, name)
        self._asked("written", lambda: self._fs.pipe_file(path, data))

    def local(self, names: Sequence[str], folder: Path) -> Path:
        """Copy the files, many at a time where the storage can."""
        targets = [folder / name for name in names]
        for parent in {target.parent for target in targets}:
            parent.mkdir(parents=True, exist_ok=True)
        paths = [posixpath.join(self._root, name) for name in names]
        if names:
            to = [str(target) for target in targets]
            self._asked("read", lambda: self._fs.get(paths, to))
        return folder

    def _asked(
        self, what: str, ask: Callable[[], _Result], missing: _Result | None = None
    ) -> _Result:
        begun = time.monotonic()
        for wait in (*_WAITS, None):
            try:
                return ask()
            except Exception as error:  # noqa: BLE001, PERF203  (each storage has its own errors)
                if isinstance(error, FileNotFoundError) and missing is not None:
                    return missing
                final = _is_final(error)
                if wait is None or final or time.monotonic() - begun > _PATIENCE:
                    # Without the cause: what libraries write into errors may hold what is secret.
                    raise StorageError(_said(self.url, what, error), passing=not final) from None
                time.sleep(wait)
        raise AssertionError


def _is_final(error: BaseException) -> bool:
    """Whether another try cannot change it."""
    known = _names(error)
    return any(word in known for word in _FINAL)


def _said(url: str, what: str, error: Exception) -> str:
    known = _names(error)
    for words, reason in _REASONS:
        if any(word in known for word in words):
            return f"{url}: this cannot be {what}: {reason}"
    return f"{url}: this cannot be {what} ({type(error).__name__})"


def _names(error: BaseException) -> str:
    """The names of an error and of those behind it, and what the codes of storages mean."""
    found: list[str] = []
    at: BaseException | None = error
    while at is not None and len(found) < 20:
        found += [one.__name__ for one in type(at).__mro__ if one.__name__ not in _PLAIN]
        response = getattr(at, "response", None)
        if isinstance(response, dict):
            found.append(str(response.get("Error", {}).get("Code", "")))
        code = str(getattr(at, "code", None))  # gcsfs has some as numbers, some as text
        found.append(_CODES.get(int(code), "") if code.isdecimal() else "")
        if type(at) is OSError and str(at).startswith("Forbidden: "):
            found.append("Forbidden")  # gcsfs makes no more of 403
        at = at.__cause__ or at.__context__
    return " ".join(found)


_PLAIN = ("Exception", "BaseException", "object", "OSError")


def _filesystem(scheme: str) -> Any:
    package, extra = _SCHEMES[scheme]
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        import fsspec

        return _OPENED.get(scheme, fsspec.filesystem)(scheme)
    except ImportError:
        raise MissingExtra(f"addresses with {scheme}://", package, extra) from None
    except Exception as error:  # noqa: BLE001  (each storage has errors of its own)
        raise StorageError(f"{scheme}://: this cannot be opened ({type(error).__name__})") from None


def _s3(scheme: str) -> Any:
    import fsspec

    limits = {"connect_timeout": _CONNECT, "read_timeout": _READ}
    opened = fsspec.filesystem(scheme, config_kwargs=limits)
    opened.retries = _S3_TRIES
    return opened


def _gs(scheme: str) -> Any:
    import aiohttp  # what gcsfs speaks with; by itself it waits for an answer for ever
    import fsspec

    limits = aiohttp.ClientTimeout(sock_connect=_CONNECT, sock_read=_READ)
    return fsspec.filesystem(scheme, requests_timeout=limits)


#: Those that need more than their name.
_OPENED = {"s3": _s3, "gs": _gs}


def emptied(folder: Path) -> None:
    """Take a folder of copies away."""
    shutil.rmtree(folder, ignore_errors=True)
