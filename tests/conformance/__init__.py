"""Upstream's own multi-core tests, run on simulated cores: see ``run``."""
