"""What the settings of a project start its programs on, as one word for ``lint/launches``."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """What settings and scripts ask for.

    Attributes:
        on_tpus: Whether they start the project's programs on TPUs.
        several: Whether on several cores of them: by number, or because nothing says how many.
        on_others: Whether on other devices too: they ask for these, or one file is called for TPUs,
            beside which there are others.
        on_gpus: Whether scripts or settings start programs on GPUs, and nothing of the project asks
            for TPUs.
        files: The modules that shell scripts start, by their names without folders, and whether all
            scripts that start it ask the Trainer of transformers to shard its weights.
    """

    on_tpus: bool = False
    several: bool = False
    on_others: bool = False
    on_gpus: bool = False
    filename: str = ""
    row: int = 1
    files: tuple[tuple[str, bool], ...] = ()


NOT_SAID = Started()
