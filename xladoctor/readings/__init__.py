"""Text and run directories to tidy tables.

The door: :func:`load` reads any mix of sources. ``frames`` turns tables into pandas data frames.
"""

from xladoctor.readings.sources import STDIN, load
from xladoctor.readings.tables import Readings

__all__ = ["STDIN", "Readings", "load"]
