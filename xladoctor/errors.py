"""The one exception root of xladoctor.

``XladoctorError``
    |-- ``UsageError``      a flag, path or setting the user gave cannot be used
    |-- ``SourceError``     a file or run directory cannot be read
    |   `-- ``StorageError``  a storage refuses, throttles or does not answer
    |-- ``MissingExtra``    an optional package is not installed
    `-- ``CatalogueError``  the installation's own rule pages are missing or malformed

The command line catches the root once, prints the message as one sentence on stderr and exits
with ``exit_code``. Every message names the place and the remedy.
"""

from __future__ import annotations


class XladoctorError(Exception):
    """Something went wrong that the user can understand and fix; exit code 2."""

    exit_code = 2


class UsageError(XladoctorError):
    """A flag, a path or a setting cannot be used as given."""


class SourceError(XladoctorError):
    """A file, a report or a run directory cannot be read."""


class StorageError(SourceError):
    """A storage (a bucket, a shared folder) refuses, throttles or does not answer.

    Attributes:
        passing: Whether another try, later, may well succeed.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class CatalogueError(XladoctorError):
    """A rule page or table of the installation is missing or malformed."""


class MissingExtra(XladoctorError):  # noqa: N818  (reads as a sentence: raise MissingExtra(...))
    """An optional package is needed and not installed.

    Args:
        what: What the user asked for, as the subject of a sentence ("data frames").
        package: The package that is missing.
        extra: The extra of xladoctor that brings it.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f'{what} need {package}, which is not installed: pip install "xladoctor[{extra}]"'
        )
