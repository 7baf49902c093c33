"""Commands with choices: ``--batch-size {32,64,128}`` is three commands."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Commands that one plan may have: each is traced, and compiled for every target.
MOST = 64

#: Braces that are a choice, or a number alone; those of JSON (quotes, colons) and of templates
#: ("run-{epoch}") are the program's own.
_CHOICE = re.compile(r"\{([^{}\"':]*,[^{}\"':]*|\s*[\d.]+\s*)\}")
_SHELL = 'put it in quotes: --batch-size "{32,64,128}"'


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One command.

    Attributes:
        command: Its words.
        values: What was chosen, by the option it belongs to ("--batch-size"); a word that belongs
            to no option is "argument 2", counted from the command's own first word.
    """

    command: tuple[str, ...]
    values: dict[str, str]


def expand(words: Sequence[str]) -> list[Choice]:
    """All commands that a command with choices stands for; several choices make all combinations.

    Raises:
        UsageError: Braces that cannot be read, or too many combinations.
    """
    pieces = [_pieces(word) for word in words]
    names = _names(words, [len(options) > 1 for options in pieces])
    count = 1
    for options in pieces:
        count *= len(options)
    if count > MOST:
        raise UsageError(
            f"the choices in braces make {count} commands, and one plan may have {MOST}: "
            "take fewer values"
        )
    return [
        Choice(
            tuple(word for word, _ in chosen),
            {
                name: value
                for name, (_, value) in zip(names, chosen, strict=True)
                if name is not None and value is not None
            },
        )
        for chosen in itertools.product(*pieces)
    ]


def _pieces(word: str) -> list[tuple[str, str | None]]:
    """What a word may be, and for each what was chosen (None in a word without a choice)."""
    found = list(_CHOICE.finditer(word))
    if not found:
        if re.search(r"\{[^{}\"':]*,[^{}\"':]*$", word):
            raise UsageError(f"{word}: a brace is not closed; {_SHELL}")
        if re.search(r"^[^{}\"':]*,[^{}\"':]*\}$", word):
            raise UsageError(f"{word}: a brace is not opened; {_SHELL}")
        return [(word, None)]
    options = []
    for match in found:
        values = [value.strip() for value in match[1].split(",")]
        if not all(values):
            raise UsageError(f"{word}: {match[0]} has an empty value; {_SHELL}")
        if len(values) == 1:
            raise UsageError(f"{word}: {match[0]} has only one value; write {values[0]}")
        if len(set(values)) < len(values):
            raise UsageError(f"{word}: {match[0]} has a value twice")
        options.append(values)
    if "{" in _CHOICE.sub("", word) or "}" in _CHOICE.sub("", word):
        raise UsageError(f"{word}: braces inside braces cannot be read; {_SHELL}")
    made: list[tuple[str, str | None]] = []
    for values_of_one in itertools.product(*options):
        text, at = "", 0
        for match, value in zip(found, values_of_one, strict=True):
            text += word[at : match.start()] + value
            at = match.end()
        made.append((text + word[at:], ",".join(values_of_one)))
    return made


def _names(words: Sequence[str], chosen: Sequence[bool]) -> list[str | None]:
    """The name of each word that has a choice."""
    names: list[str | None] = []
    for at, (word, has_choice) in enumerate(zip(words, chosen, strict=True)):
        name: str | None = None
        if has_choice:
            option, equals, _ = word.partition("=")
            before = words[at - 1] if at else ""
            if equals and "{" not in option:
                name = option
            elif before.startswith("-") and "=" not in before:
                name = before
            else:
                name = f"argument {at}"
            if name in names:
                name = f"{name} (argument {at})"
        names.append(name)
    return names
