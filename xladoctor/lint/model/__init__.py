"""What is known about a file: names, kinds of value, regions, reach.

Rules import from here: ``from xladoctor.lint.model import FileModel, Problem, Kind``.
"""

from xladoctor.lint.model.calls import CallSite
from xladoctor.lint.model.file import FileModel
from xladoctor.lint.model.loops import Entry, Guard, Loop, LoopKind, OnXla
from xladoctor.lint.model.problems import Problem
from xladoctor.lint.model.syntax import Class, Function, children, walk
from xladoctor.lint.model.values import Kind, Value

__all__ = [
    "CallSite",
    "Class",
    "Entry",
    "FileModel",
    "Function",
    "Guard",
    "Kind",
    "Loop",
    "LoopKind",
    "OnXla",
    "Problem",
    "Value",
    "children",
    "walk",
]
