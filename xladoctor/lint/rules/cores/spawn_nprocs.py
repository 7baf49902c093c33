"""XLA404: ``xmp.spawn(nprocs=8)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.elements import ASKS_ENVIRONMENT
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import PARTIAL
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._answers import answers
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._cores import COUNT_NAME
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: First release that raises; 2.0 to 2.5 logged a warning and ignored the number.
_RAISES = (2, 6)
_IGNORES = (2, 0)
#: How many devices there are, and which: as many processes are not to be asked for.
_COUNTS = frozenset(
    f"torch_xla.{name}"
    for name in (
        *("runtime.world_size", "runtime.global_device_count", "runtime.local_device_count"),
        *("runtime.global_runtime_device_count", "device_count"),
    )
)
_WORLD = "torch_xla.runtime.world_size"
_LISTS = frozenset({"torch_xla.core.xla_model.get_xla_supported_devices", "torch_xla.devices"})
#: Questions about a number that say that it is not 1, with their answers.
_SAY_SEVERAL = (
    ((cst.GreaterThan, 1), True),
    ((cst.GreaterThanEqual, 2), True),
    ((cst.NotEqual, 1), True),
    ((cst.Equal, 1), False),
    ((cst.LessThan, 2), False),
    ((cst.LessThanEqual, 1), False),
)
_SPAWN = "torch_xla.distributed.xla_multiprocessing.spawn"


@rule("XLA404")
def spawn_nprocs(model: FileModel) -> Iterator[Problem]:
    """Find a number of processes other than 1 given to ``xmp.spawn``."""
    if model.target < _IGNORES:
        return
    for call in model.calls(_SPAWN, PARTIAL):
        function = call.argument(0, None) if call.name == PARTIAL else call.node.func
        if function is None or model.name(function) != _SPAWN:
            continue
        given = call.argument(3 if call.name == PARTIAL else 2, "nprocs")
        if given is None:
            continue
        value = constant(model, given)
        chosen = _choices(model, given) if value is NotImplemented else []
        value = max(chosen, default=value)
        # args.cores: whoever starts the program chooses, and it is there to be chosen.
        flag = isinstance(given, cst.Attribute) and isinstance(value, int)
        unseen = value is NotImplemented and (
            isinstance(given, cst.Attribute | cst.Subscript)
            or _counts_devices(model, given)
            or _may_be_given(model, given)
            or _is_called_a_count(model, call, given)
        )
        unseen = unseen or (value is None and _is_asked_for(model, call, given))
        unseen = unseen or (value is NotImplemented and _are_several(model, call, given))
        if not unseen and (not isinstance(value, int) or (value == 1 and not flag)):
            continue
        yield model.problem(
            given,
            _message(model, given, value),
            suggestion="leave nprocs out, or use torch_xla.launch(fn, args=...); "
            "limit the cores with TPU_NUM_DEVICES",
            fix=_fix(model, call, given, safe=not (flag or unseen or chosen)),
        )


def _choices(model: FileModel, given: cst.BaseExpression) -> list[int]:
    """The numbers that a name may hold, whatever else it is bound to (``len(gpus)`` on GPUs).

    Of a parameter: the default, wherever no call says another (``def run(model, cores=8)``), and
    what the calls say.
    """
    if isinstance(given, cst.BooleanOperation):
        return _whole([_number(model, given)])
    if isinstance(given, cst.IfExp):
        return _several_of(model, given)
    if not isinstance(given, cst.Name):
        return []
    bound = [binding.node for binding in model.bindings(given.value, given)]
    if len(bound) == 1 and isinstance(bound[0], cst.Param):
        return _handed(model, bound[0])
    made = assigned(model, given)
    several = [one for x in made if isinstance(x, cst.IfExp) for one in _several_of(model, x)]
    return several + _whole(_number(model, node) for node in made)


def _several_of(model: FileModel, choice: cst.IfExp) -> list[int]:
    """The numbers other than 1 on the sides of ``1 if args.single else 4``."""
    either = _whole(_number(model, side) for side in (choice.body, choice.orelse))
    return [one for one in either if one > 1]


def _whole(values: Iterable[object]) -> list[int]:
    """The numbers among some values; True is none."""
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def _number(model: FileModel, node: cst.BaseExpression) -> object:
    """A number as it is written; of ``int(os.environ.get("CORES", "4"))`` the default.

    And of ``args.cores or 8``.
    """
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        return model.literal(node.right)
    call = model.call(node) if isinstance(node, cst.Call) else None
    if call is None or call.name != "builtins.int" or len(call.positional) != 1:
        return model.literal(node)
    inner = call.positional[0]
    asks = model.call(inner) if isinstance(inner, cst.Call) else None
    default = asks.argument(1, "default") if asks and asks.name in ASKS_ENVIRONMENT else None
    value = model.literal(default) if default is not None else None
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _handed(model: FileModel, parameter: cst.Param) -> list[int]:
    """The numbers that calls in sight give to a parameter, and its default, if one gives none."""
    function = model.function_of(parameter)
    if function is None:
        return []
    calls = model.callers(function)
    given = [call.given_to(function, parameter.name.value) for call in calls]
    if not calls or None in given:
        given.append(parameter.default)
    return _whole(model.literal(node) for node in given if node is not None)


def _counts_devices(model: FileModel, given: cst.BaseExpression) -> bool:
    """``xr.global_device_count()``, ``len(xm.get_xla_supported_devices())``, also by a name."""
    for node in _meant(model, given):
        call = model.call(node) if isinstance(node, cst.Call) else None
        if call is None:
            continue
        if call.name in _COUNTS:
            return True
        if call.name == "builtins.len" and call.positional:
            [inner, *_] = call.positional
            made = [node for node in _meant(model, inner) if isinstance(node, cst.Call)]
            return any(model.call(node).name in _LISTS for node in made)
    return False


def _counts_before(model: FileModel, given: cst.BaseExpression) -> bool:
    """``xr.world_size()`` of the process that starts the cores: it knows of no other yet."""
    made = assigned(model, given) if isinstance(given, cst.Name) else (given,)
    return bool(made) and all(
        isinstance(one, cst.Call) and model.name(one.func) == _WORLD for one in made
    )


def _may_be_given(model: FileModel, given: cst.BaseExpression) -> bool:
    """``args.cores if args.cores else None``: a number wherever whoever starts it gives one."""
    return any(
        isinstance(node, cst.IfExp)
        and any(isinstance(one, cst.Attribute | cst.Subscript) for one in (node.body, node.orelse))
        for node in _meant(model, given)
    )


def _is_called_a_count(model: FileModel, call: CallSite, given: cst.BaseExpression) -> bool:
    """``num_cores`` of a file that is not there, or what a function of the program counts.

    Where the program says what it may be, only if that is a number other than 1; where it asks
    first, ``_are_several`` knows.
    """
    if not isinstance(given, cst.Name) or not COUNT_NAME.match(given.value):
        return False
    asked = (
        name for guard in model.guards(call.node) for name in model.within(guard.test, cst.Name)
    )
    if any(name.value == given.value for name in asked):
        return False
    bound = model.bindings(given.value, given)
    made = assigned(model, given)
    if not made:
        return all(item.kind == "import" for item in bound)
    return all(isinstance(one, cst.Call) and _counts(model, one) for one in made)


def _counts(model: FileModel, node: cst.Call) -> bool:
    """Whether a call gives a number that is not known to be 1: ``count_cores()``."""
    call = model.call(node)
    target = call.target
    if not isinstance(target, Function):
        # What torch_xla counts is known (``_COUNTS``); an entry or a variable may be missing.
        may_be_none = call.last in {"get", "getenv", "getattr"}
        return target is None and not may_be_none and not (call.name or "").startswith("torch_xla.")
    home = model.file_with(target.node)
    given = [*returned(target)]
    numbers = [_number(home, one) for one in given]
    if 1 in numbers or any(home.literal(one) is None for one in given):
        return False
    return any(_is_several(number) for number in numbers)


def _is_several(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _is_asked_for(model: FileModel, call: CallSite, given: cst.BaseExpression) -> bool:
    """Whether a condition says that a setting is no None here: ``if args.cores is not None:``."""
    written = model.tree.text(given).strip()
    return any(
        _is_some(model, written, part, holds)
        for guard in model.guards(call.node)
        for part, holds in answers(model, guard.test, when=guard.when)
        if holds is not None
    )


def _are_several(model: FileModel, call: CallSite, given: cst.BaseExpression) -> bool:
    """Whether a condition says that a number is another than 1: ``if cores > 1:``."""
    written = model.tree.text(given).strip()
    for guard in model.guards(call.node):
        for part, holds in answers(model, guard.test, when=guard.when):
            if not isinstance(part, cst.Comparison) or len(part.comparisons) > 1:
                continue
            [compared] = part.comparisons
            asked = type(compared.operator), model.literal(compared.comparator)
            if model.tree.text(part.left).strip() == written and (asked, holds) in _SAY_SEVERAL:
                return True
    return False


def _is_some(model: FileModel, written: str, test: cst.BaseExpression, holds: bool) -> bool:
    """Whether a question with this answer says that what is written so is no None."""
    if model.tree.text(test).strip() == written:
        return holds
    if not isinstance(test, cst.Comparison) or model.tree.text(test.left).strip() != written:
        return False
    [compared, *more] = test.comparisons
    if more or not is_name(compared.comparator, "None"):
        return False
    if isinstance(compared.operator, cst.IsNot | cst.NotEqual):
        return holds
    return isinstance(compared.operator, cst.Is | cst.Equal) and not holds


def _meant(model: FileModel, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """An expression, and what it is assigned if it is a name."""
    return [node, *(assigned(model, node) if isinstance(node, cst.Name) else ())]


def _message(model: FileModel, given: cst.BaseExpression, value: object) -> str:
    known = isinstance(value, int) and value != 1
    written = snippet(model, given)
    if value is NotImplemented and _counts_before(model, given):
        return (
            f"{written} is 1 in the process that starts the cores, however many there are "
            "(measured on 2.9): one core does all the work"
        )
    what = f"{written} other than 1"
    if known:
        # As the source says it: whoever reads the message looks for that.
        plain = written.strip("`")
        what = f"nprocs={plain}" + (f" ({value})" if plain != str(value) else "")
    if model.target < _RAISES:
        return f"{what} is ignored: with PJRT spawn starts one process per device"
    return (
        f"{what} raises ValueError: since torch_xla 2.6 spawn starts one process per device "
        "and accepts only nprocs=1 or None"
    )


def _fix(model: FileModel, call: CallSite, given: cst.BaseExpression, *, safe: bool) -> Fix | None:
    """Leave the number out; safe if it is known, since only a known one is sure to raise."""
    last = call.node.args[-1]
    if given not in call.keywords.values() and last.value is not given:
        # What follows would move to its place.
        return model.fix("Give None for nprocs", model.replace(given, "None"), safe=safe)
    return model.fix("Remove nprocs", model.remove_argument(call.node, given), safe=safe)
