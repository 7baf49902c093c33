"""Parameters that are one literal, since all calls of their function give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model.trials import in_script

if TYPE_CHECKING:
    from xladoctor.lint.model.file_code import FileCode
    from xladoctor.lint.model.syntax import Function


def given_alike(code: FileCode, function: Function, name: str) -> object:
    """What all known calls of a function give for a parameter, or leave to its default.

    ``NotImplemented`` where they differ, or one is no literal. A default that only a call right
    below ``if __name__ == "__main__":`` meets may be there to try the function out.
    """
    calls, default = code.callers(function), function.default(name)
    if default is not None and all(
        call.function is None and in_script(code.tree, call.node) for call in calls
    ):
        return NotImplemented
    found: list[object] = []
    for call in calls:
        given = call.given_to(function, name) or default
        if given is None or call.has_star or code.gives_name(call):
            return NotImplemented
        found.append(code.literal(given))
    alike = all(one == found[0] and type(one) is type(found[0]) for one in found)
    return found[0] if found and alike else NotImplemented
