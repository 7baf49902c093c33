"""What the TPU's own compiler says of recorded graphs, on a machine without a TPU.

``targets`` names slices as Google Cloud does, ``modules`` makes a recorded graph ready,
``compiler`` hands it to worker processes (``worker``; there ``adapter`` is the only module that
knows jaxlib and libtpu, and ``optimized`` and ``allocations`` read what they answer), ``cache``
remembers answers, ``compiled`` has the types. Nothing here needs torch, and only the workers load
jaxlib and libtpu.
"""
