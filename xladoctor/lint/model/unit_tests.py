"""What stands in unit tests: how long their loops take is nobody's matter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text

if TYPE_CHECKING:
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Class, Tree

#: What classes of tests are built on, by the end of its name: unittest's, absl's, a program's own.
_TEST_CASE = "TestCase"


class UnitTests:
    """The tests in a file or files.

    Args:
        tree: The syntax.
        flow: Who calls what, and the bases of classes.
    """

    def __init__(self, tree: Tree, flow: Flow) -> None:
        self._tree = tree
        self._flow = flow

    def hold(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in a class of tests, or in a test that pytest runs."""
        function = self._tree.function_of(node)
        around = list(function.around) if function is not None else []
        if any(one.owner is not None and self._is_test_case(one.owner) for one in around):
            return True
        return self._tree.module_of(node) in self._with_pytest and any(
            one.name.startswith("test_") and not self._flow.callers(one) for one in around
        )

    def _is_test_case(self, owner: Class) -> bool:
        """``class StepTest(unittest.TestCase)``, and what is built on one."""
        return any(
            (dotted_text(base) or "").endswith(_TEST_CASE)
            for cls in (owner, *self._flow.classes.above(owner))
            for base in cls.bases
        )

    @functools.cached_property
    def _with_pytest(self) -> frozenset[cst.Module]:
        """The files that import pytest."""
        return frozenset(
            self._tree.module_of(node)
            for node in self._tree.imports
            if isinstance(node, cst.Import)
            and any(dotted_text(alias.name) == "pytest" for alias in node.names)
        )
