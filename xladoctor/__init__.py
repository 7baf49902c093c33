"""Find what makes PyTorch/XLA training slow, wrong or stuck.

Two roads lead to the same findings: ``xladoctor lint`` reads the code before the run,
``xladoctor profile`` watches the run itself. Both speak of one problem with one code.
"""

__version__ = "0.1.0"
__all__ = ["__version__", "cores_differ_on_purpose"]


def cores_differ_on_purpose(*what: object) -> None:
    """Say that the cores of this program are meant to hold different weights.

    ``xladoctor profile --simulate-cores`` compares the weights of all cores and reports when they
    part (XLA412). Call this on every core for what shall not be compared; outside of a profiled
    run it does nothing that can be noticed.

    Args:
        what: Modules (before or after they are moved to the device) or parameters (after). Without
            any, nothing of this program is compared.
    """
    import os

    if not what:
        os.environ["XLADOCTOR_CORES_DIFFER"] = "1"
    for one in what:
        setattr(one, "_xladoctor_differs_on_purpose", True)  # noqa: B010  (any kind of object)
