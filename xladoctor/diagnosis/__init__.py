"""One module a diagnosis: tables in, findings out; thresholds in one place.

The door: :func:`diagnose` makes the :class:`~xladoctor.results.Report` that every format shows.
"""

from xladoctor.diagnosis.diagnose import diagnose

__all__ = ["diagnose"]
