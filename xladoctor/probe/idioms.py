"""The operations and idioms that are measured: ``rules/tables/idioms.toml`` as objects."""

from __future__ import annotations

import dataclasses

from xladoctor import catalogue


@dataclasses.dataclass(frozen=True, slots=True)
class Idiom:
    """One idiom.

    Attributes:
        group: "host-read", "dynamic-shape", "python-scalar", "op", "module" or "loop".
        code: What one step runs.
        setup: What is run once before.
    """

    group: str
    code: str
    setup: str = ""

    @property
    def name(self) -> str:
        """The code as it is shown, distinct within all idioms."""
        if self.group == "module":
            return f"{self.setup}({self.code})"
        return f"{self.setup}; {self.code}" if self.setup else self.code


def idioms() -> list[Idiom]:
    """All idioms, each name once."""
    table = catalogue.table("idioms")
    found = [
        _idiom(group, line)
        for group, text in table["code"].items()
        for line in text.strip().splitlines()
    ]
    found += [
        Idiom("op", form.format(name))
        for form, names in table["each"].items()
        for name in names.split()
    ]
    return list({idiom.name: idiom for idiom in found}.values())


def _idiom(group: str, line: str) -> Idiom:
    setup, arrow, code = line.partition(" >>> ")
    return Idiom(group, code, setup) if arrow else Idiom(group, line)
