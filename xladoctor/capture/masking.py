"""Secrets in command lines, masked before a command line is kept or shown anywhere.

What stands behind a name that ends in ``token``, ``password``, ``secret``, ``key`` and the like is
replaced, however it is written: ``--hf-token X``, ``--api_key=X``, ``WANDB_API_KEY=X``,
``login(token="X")`` inside ``-c``, ``https://user:X@host``; so are tokens that show by their own
form what they are. The names stay. Standard library only: the agent uses it too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Stands for what was masked.
MASK = "***"

#: A name is that of a secret by its last word: ``--max-tokens`` and ``--key-dim`` are none.
_SECRETS = (
    "token", "password", "passwd", "passphrase", "pwd", "secret", "key", "apikey", "credential",
    "credentials",
)  # fmt: skip
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VALUE = r"(?:(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)|[^\s'\"(){},;&|]+)"
_NAME = r"(?<![\w.-])(?P<name>{}[A-Za-z][\w.-]*)"
_ASSIGNED = re.compile(_NAME.format("") + r"(?P<between>['\"]?\s*[=:]\s*)" + _VALUE, re.DOTALL)
#: An option and its value in a shell's text (``bash -c``).
_GIVEN = re.compile(_NAME.format("--?") + r"(?P<between>\s+)(?!-)" + _VALUE, re.DOTALL)
#: A word that is name and value.
_WHOLE = re.compile(r"(?P<start>(?P<name>-{0,2}[A-Za-z][\w.-]*)=).+", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*$")
#: The same with a value in the same word, or another option: no secret follows the one before.
_NO_VALUE = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?$", re.DOTALL)
_IN_URL = re.compile(r"(?<=://)(?P<user>[^/\s:@]*):(?P<value>[^/\s@]+)(?=@)")
#: Hugging Face, OpenAI, GitHub, GitLab, Slack, Google, AWS.
_BY_FORM = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|gh[opsur]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|AKIA[A-Z0-9]{12,})"
)


def masked(words: Sequence[str]) -> list[str]:
    """A command line without its secrets, as many words as before."""
    found = []
    expected = False
    for word in words:
        if expected and not _NO_VALUE.match(word):
            found.append(MASK)
            expected = False
            continue
        expected = _OPTION.match(word) is not None and _is_secret(word)
        found.append(word if expected else _in_text(word))
    return found


def names(words: Sequence[str]) -> list[str]:
    """Which parts of a command line hold something masked: the options' names, each once."""
    told: dict[str, None] = {}
    clean = masked(words)
    for at, (before, after) in enumerate(zip(words, clean, strict=True)):
        if before == after:
            continue
        if after == MASK and at and _is_secret(clean[at - 1]):
            told[clean[at - 1]] = None
        elif (match := re.match(r"(--?[\w.-]+|[\w.]+)=", after)) is not None:
            told[match[1]] = None
        else:
            told["an argument"] = None
    return list(told)


def _in_text(word: str) -> str:
    whole = _WHOLE.fullmatch(word)
    if whole is not None and _is_secret(whole["name"]):
        return whole["start"] + MASK
    for form in (_ASSIGNED, _GIVEN):
        word = form.sub(_without_value, word)
    return _BY_FORM.sub(MASK, _IN_URL.sub(rf"\g<user>:{MASK}", word))


def _without_value(match: re.Match[str]) -> str:
    if not _is_secret(match["name"]):
        return match[0]
    quote = match["quote"] or ""
    return f"{match['name']}{match['between']}{quote}{MASK}{quote}"


def _is_secret(name: str) -> bool:
    parts = _WORDS.findall(name)
    return bool(parts) and parts[-1].lower() in _SECRETS
