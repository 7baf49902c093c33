"""Where code runs: loops, guards, entry points (first form: only what names tell)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.loops import Entry, Guard, Loop, LoopKind
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree


class Regions:
    """Regions of a file."""

    def __init__(self, tree: Tree, names: Names, flow: Flow) -> None:
        self._tree = tree
        self._flow = flow
        imported = names.imported()
        self.is_xla = any(name.partition(".")[0] == "torch_xla" for name in imported)
        self.spmd = False
        self.frameworks: frozenset[str] = frozenset()
        self.entries: Sequence[Entry] = ()
        self.loops: Sequence[Loop] = ()

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """The innermost loop around a node."""

    def hot(self, node: cst.CSTNode, kind: LoopKind) -> Loop | None:
        """The loop of a kind that runs a node every iteration."""

    def throttled(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only every so many iterations."""
        return False

    def in_step_closure(self, node: cst.CSTNode) -> bool:
        """Whether a node runs in a step closure."""
        return False

    def on_every_core(self, node: cst.CSTNode) -> Entry | None:
        """The entry that reaches a node."""

    def guards(self, node: cst.CSTNode) -> Sequence[Guard]:
        """Conditions around a node."""
        return ()

    def master_only(self, node: cst.CSTNode) -> Guard | None:
        """The guard that lets only the master through."""

    def core_guard(self, node: cst.CSTNode) -> Guard | None:
        """The guard that differs from core to core."""
