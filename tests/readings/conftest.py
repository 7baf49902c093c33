from __future__ import annotations

from hypothesis import settings

# How long an example takes depends on the machine; what is read does not.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
