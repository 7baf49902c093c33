"""How a file asks for TPU cores: arguments, keys of settings, options of its command line.

And how it asks for other devices.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import called_name
from xladoctor.lint.model.dotted import is_name, string

if TYPE_CHECKING:
    from xladoctor.lint.model.syntax import Tree

#: Arguments of Lightning's and of transformers' Trainers that ask for TPU cores.
CORES = frozenset({"tpu_cores", "num_tpu_cores", "tpu_num_cores"})
#: What declares an option of a program, what such an option chooses, and what its help says then.
_OPTIONS = frozenset({"add_argument", "option", "Option", "argument", "Argument"})
_CHOOSES = re.compile(r"accelerator|strategy|hardware|platform", re.IGNORECASE)
_TPUS = re.compile(r"\btpus?\b", re.IGNORECASE)


def asks_for_cores(tree: Tree, *, lightning: bool) -> bool:
    """Whether a file gives a framework TPU cores, or lets who starts it choose them.

    Args:
        tree: The file.
        lightning: Whether it imports Lightning, whose Trainer takes what options are called.
    """
    if lightning and (any(map(_option_for_tpu, tree.calls)) or _hands_cores_on(tree)):
        return True
    return (
        any(map(_is_given_cores, (argument for call in tree.calls for argument in call.args)))
        or any(_is_key(literal, tree) for literal in tree.strings if string(literal) in CORES)
        or any(map(_option_for_cores, tree.calls))
    )


def asks_for_others(tree: Tree) -> bool:
    """``Trainer(accelerator="gpu")``, ``Trainer(gpus=1)``, whatever the file is called."""
    return any(_wants_others(argument) for call in tree.calls for argument in call.args)


def _wants_others(argument: cst.Arg) -> bool:
    """Whether an argument asks a Trainer for other devices; no GPUs are ``gpus=0``."""
    keyword, value = argument.keyword.value if argument.keyword is not None else "", argument.value
    if keyword == "gpus" and isinstance(value, cst.Integer):
        return value.value != "0"
    return (
        keyword == "accelerator"
        and isinstance(value, cst.SimpleString)
        and str(string(value)) in {"gpu", "cuda", "cpu", "mps"}
    )


def _is_given_cores(argument: cst.Arg) -> bool:
    """``Trainer(tpu_cores=8)``, but not ``Trainer(tpu_cores=None, gpus=1)``, which wants none."""
    keyword = argument.keyword
    return keyword is not None and keyword.value in CORES and not is_name(argument.value, "None")


def _is_key(literal: cst.SimpleString, tree: Tree) -> bool:
    """Whether it names what a dictionary is given: ``{"tpu_cores": 8}``, ``d["tpu_cores"] = 8``."""
    parent = tree.parents.get(literal)
    if isinstance(parent, cst.DictElement):
        return parent.key is literal
    # The subscript around it, if it is the target of an assignment.
    above = list(tree.ancestors(literal))[:4] if isinstance(parent, cst.Index) else []
    return len(above) == 4 and isinstance(above[3], cst.AssignTarget)


def _option_for_cores(call: cst.Call) -> bool:
    """``parser.add_argument("--tpu_cores", default=8)``: cores unless somebody wants none."""
    flag = call.args[0].value if call.args else None
    if not isinstance(flag, cst.SimpleString) or str(string(flag)).lstrip("-") not in CORES:
        return False
    given = (one.value for one in call.args if one.keyword is not None)
    return any(isinstance(value, cst.Integer) and value.value != "0" for value in given)


def _hands_cores_on(tree: Tree) -> bool:
    """``add_argument("--n_cores", dest="tpu_cores")``, beside ``Trainer.from_argparse_args(args)``.

    The Trainer takes what an option of that name is given.
    """
    handed = any(
        isinstance(call.func, cst.Attribute) and call.func.attr.value == "from_argparse_args"
        for call in tree.calls
    )
    return handed and any(_option_of(call) in CORES for call in tree.calls if call.args)


def _option_of(call: cst.Call) -> str:
    """The name that an option has in what is parsed: its ``dest``, else its flag; "" for none."""
    if called_name(call) not in _OPTIONS:
        return ""
    named = [one.value for one in call.args if one.keyword and one.keyword.value == "dest"]
    flag = (*named, call.args[0].value)[0]
    return str(string(flag)).lstrip("-") if isinstance(flag, cst.SimpleString) else ""


def _option_for_tpu(call: cst.Call) -> bool:
    """``parser.add_argument("--accelerator", required=True, help="cpu, gpu or tpu")``.

    Of an option with a default the help says what else it takes; the program is for the default.
    """
    name = call.args[0].value if call.args else None
    if called_name(call) not in _OPTIONS:
        return False
    said = {one.keyword.value: one.value for one in call.args if one.keyword is not None}
    options = [one.value for one in call.args if one.keyword is None]
    named = [str(string(one)) for one in options if isinstance(one, cst.SimpleString)]
    if name is None or "default" in said or not any(_CHOOSES.search(one) for one in named):
        return False
    told = said.get("help")
    return isinstance(told, cst.SimpleString) and bool(_TPUS.search(str(string(told))))
