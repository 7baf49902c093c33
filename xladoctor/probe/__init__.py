"""Measuring what operations and idioms do on XLA tensors: ``rules/tables/ops.toml`` made anew.

``idioms`` lists them as code, ``worker`` runs them with the installed torch_xla (in a process of
its own, so that nothing here needs torch), ``table`` writes and compares tables.
"""
