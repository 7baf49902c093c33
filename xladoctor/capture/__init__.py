"""The profiler's capture: starts a command, watches it from inside, writes a run directory."""
