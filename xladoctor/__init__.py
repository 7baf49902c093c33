"""Find what makes PyTorch/XLA training slow, wrong or stuck.

Two roads lead to the same findings: ``xladoctor lint`` reads the code before the run,
``xladoctor profile`` watches the run itself. Both speak of one problem with one code.
"""

import sys

__version__ = "0.1.0"
__all__ = ["__version__", "step"]


def step() -> None:
    """Say that one step of the training is over, for loops in which xladoctor does not see it.

    By itself ``xladoctor profile`` takes each step of an optimizer as one. Call this at the end of
    each turn of a loop that has no optimizer, or steps several of them. From the first call on, the
    calls of a core are its steps. Outside a profiled run it does nothing.
    """
    agent = sys.modules.get("_xladoctor.agent.boot")
    if agent is not None:
        agent.step()
