"""What stands in unit tests: how long their loops take is nobody's matter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.frameworks import LIGHTNING_EVALS

if TYPE_CHECKING:
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Class, Function

#: What classes of tests are built on, by the end of its name: unittest's, absl's, a program's own.
_TEST_CASE = "TestCase"
#: How folders of unit tests are called, and how far above a file one is looked for.
_TESTS = frozenset({"tests", "test", "testing"})
_FOLDERS = 4


def in_folder_of_tests(filename: str) -> bool:
    """Whether a file stands in a folder that is called as those of unit tests are."""
    folders = filename.replace("\\", "/").split("/")[:-1]
    return not _TESTS.isdisjoint(folders[-_FOLDERS:])


class UnitTests:
    """The tests in a file or files.

    Args:
        flow: Who calls what, and the bases of classes.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._flow = flow

    def hold(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in a class of tests, or in a test that a runner of tests finds.

        Or in what decorates one: its parameters. A ``test_loop`` that the program calls is none.
        """
        function = self._tree.function_of(node)
        if function is None:
            above = [*self._tree.ancestors(node)]
            at = next((i for i, one in enumerate(above) if isinstance(one, cst.Decorator)), None)
            owner = above[at + 1] if at is not None else None
            if isinstance(owner, cst.FunctionDef):
                function = self._tree.functions.get(owner)
        return function is not None and any(map(self._is_test, function.around))

    def _is_test(self, function: Function) -> bool:
        owner = function.owner
        if owner is not None and self._is_test_case(owner):
            return True
        if self._is_collected(function):
            return True
        if not function.name.startswith("test_") or self._flow.callers(function):
            return False
        if owner is not None:
            hook = function.name in LIGHTNING_EVALS or self._flow.hooks.is_module(owner)
            return not hook
        return self._tree.module_of(function.node) in self._with_pytest

    def _is_collected(self, function: Function) -> bool:
        """The methods of ``class TestSteps``, and fixtures, in a file that imports pytest."""
        owner = function.owner
        named = owner is not None and owner.name.startswith("Test") and not owner.bases
        made = (each.func if isinstance(each, cst.Call) else each for each in function.decorators)
        fixture = any(dotted_text(each) == "pytest.fixture" for each in made)
        return (named or fixture) and self._tree.module_of(function.node) in self._with_pytest

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
