"""One module a format; each is a function of a Report.

The door: :func:`render`, and :data:`FORMATS` for the command line.
"""

from xladoctor.report.formats import FORMATS, render

__all__ = ["FORMATS", "render"]
