"""Where the runs of many hosts live: locations, parts of hosts, columnar files, queries.

A run of a pod is a folder, here or at a location of fsspec (``s3``, ``gs``, ``memory``), into
which each host writes its own part; see ``docs/run-directory.md``.
"""

from __future__ import annotations
