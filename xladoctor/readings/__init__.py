"""Text and run directories to tidy tables.

The door: :func:`load` reads any mix of sources.
"""

from xladoctor.readings.sources import STDIN, load
from xladoctor.readings.tables import Readings

__all__ = ["STDIN", "Readings", "load"]
