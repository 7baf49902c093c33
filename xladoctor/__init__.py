"""Find what makes PyTorch/XLA training slow, wrong or stuck.

Two roads lead to the same findings: ``xladoctor lint`` reads the code before the run,
``xladoctor profile`` watches the run itself. Both speak of one problem with one code.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
