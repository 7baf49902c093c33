"""Operations of a graph that XLA's CPU client hands back to Python.

A custom call of the CPU's compiler is a function in memory, found by its name. torch_xla puts such
an operation into a graph (``_XLAC._xla_custom_call``), but registers functions only for GPUs
(2.9.0: ``RegisterCustomCall not implemented``). XLA's own register is in the same library, and not
exported; so it is looked up in the library's symbol table, as a debugger does. Where a build of
torch_xla has none, or calls it otherwise, that is said before anything runs.

The functions of XLA that are called (``xla/service/custom_call_target_registry.h``)::

    CustomCallTargetRegistry* CustomCallTargetRegistry::Global();
    void Register(const std::string& symbol, void* address, const std::string& platform);
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: How the two functions are called in the symbol table (Itanium C++ ABI, libstdc++'s strings).
_GLOBAL = b"_ZN3xla24CustomCallTargetRegistry6GlobalEv"
_REGISTER = (
    b"_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcE"
    b"SaIcEEEPvS8_"
)
#: An exported function of the same library: from where it is, the place of the others follows.
_EXPORTED = b"PyInit__XLAC"

#: ``API_VERSION_STATUS_RETURNING_UNIFIED``: result, operands, opaque words, their length, status.
API_VERSION = 3
#: XLA's name of the CPU as a platform.
_PLATFORM = b"Host"
#: ELF: type of a section with all symbols; bytes of one symbol; where a symbol has its value.
_SYMTAB, _SYMBOL, _VALUE = 2, 24, 8

_CALLBACK: Any = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)


class NotPossibleError(Exception):
    """This build of torch_xla takes no functions; the text says why."""


class _String(ctypes.Structure):
    """libstdc++'s ``std::string``: where its characters are, how many, and room for short ones."""

    _fields_ = (
        ("data", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("local", ctypes.c_char * 16),
    )


class Callbacks:
    """The functions of this process that graphs may call.

    Raises:
        NotPossibleError: XLA's register cannot be found in this build.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        library = str(importlib.import_module("_XLAC").__file__)
        try:
            found = _symbols(library, (_GLOBAL, _REGISTER, _EXPORTED))
            exported = getattr(ctypes.CDLL(library), _EXPORTED.decode())
        except (OSError, ValueError, struct.error, AttributeError) as error:
            raise NotPossibleError(f"{os.path.basename(library)}: {error}") from error  # noqa: PTH119
        missing = {_GLOBAL, _REGISTER, _EXPORTED} - set(found)
        if missing:
            raise NotPossibleError(f"{os.path.basename(library)} has no symbols of it")  # noqa: PTH119
        address = ctypes.cast(exported, ctypes.c_void_p).value or 0
        base = address - found[_EXPORTED]
        self._global = ctypes.CFUNCTYPE(ctypes.c_void_p)(base + found[_GLOBAL])
        self._register = ctypes.CFUNCTYPE(
            None,
            ctypes.c_void_p,
            ctypes.POINTER(_String),
            ctypes.c_void_p,
            ctypes.POINTER(_String),
        )(base + found[_REGISTER])

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def add(
        self, name: str, inputs: int, outputs: int, function: Callable[[list[int], list[int]], None]
    ) -> None:
        """Let graphs call a function.

        Args:
            name: What the operation's ``call_target`` is; each may be added once.
            inputs: How many operands the operation has.
            outputs: How many results; 2 or more are a tuple.
            function: Gets the addresses of operands and results, in threads of XLA; it must not
                raise.
        """

        def called(result: int, operands: Any, *_rest: Any) -> None:
            several = outputs > 1
            results = ctypes.cast(result, ctypes.POINTER(ctypes.c_void_p)) if several else [result]
            function(
                [operands[at] or 0 for at in range(inputs)],
                [results[at] or 0 for at in range(outputs)],
            )

        callback = _CALLBACK(called)
        self._kept[name] = callback  # for ever: compiled graphs hold its address
        address = ctypes.cast(callback, ctypes.c_void_p).value
        self._register(
            self._global(),
            ctypes.byref(_string(name.encode())),
            address,
            ctypes.byref(_string(_PLATFORM)),
        )


def put(
    operands: Sequence[Any], name: str, shapes: Iterable[Sequence[int]], dtypes: Iterable[Any]
) -> list[Any]:
    """Put the operation into the pending graph.

    Args:
        operands: Tensors of one device.
        name: As in :meth:`Callbacks.add`. Whatever tells two operations apart must be in it, since
            torch_xla's hash of the graph takes nothing else of them (2.9.0, ``custom_call.cpp``).
        shapes: Of the results.
        dtypes: Of the results.

    Returns:
        The results.
    """
    xlac = importlib.import_module("torch_xla")._XLAC
    shaped = [list(shape) for shape in shapes]
    found: list[Any] = xlac._xla_custom_call(
        list(operands), name, shaped, list(dtypes), True, "", API_VERSION, {}
    )
    return found


def _string(value: bytes) -> _String:
    return _String(value, len(value), b"")


def _symbols(path: str, names: Sequence[bytes]) -> dict[bytes, int]:
    """The values of symbols in the symbol table of a 64-bit little-endian ELF file.

    Raises:
        ValueError: It is not such a file.
    """
    found: dict[bytes, int] = {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as words:  # noqa: PTH123
        if words[:6] != b"\x7fELF\x02\x01":
            raise ValueError("this is no 64-bit ELF library")
        (at,) = struct.unpack_from("<Q", words, 0x28)
        size, count = struct.unpack_from("<HH", words, 0x3A)
        sections = [struct.unpack_from("<IIQQQQII", words, at + one * size) for one in range(count)]
        for _, kind, _, _, start, length, link, _ in sections:
            if kind == _SYMTAB:
                texts = sections[link][4], sections[link][4] + sections[link][5]
                for name in names:
                    value = _value(words, name, texts, (start, start + length))
                    if value is not None:
                        found[name] = value
    return found


def _value(
    words: mmap.mmap, name: bytes, texts: tuple[int, int], symbols: tuple[int, int]
) -> int | None:
    """The value of the symbol of that name."""
    text = words.find(b"\0" + name + b"\0", *texts)
    if text < 0:
        return None
    key = struct.pack("<I", text + 1 - texts[0])  # a symbol begins with where its name is
    at = words.find(key, *symbols)
    while at >= 0 and (at - symbols[0]) % _SYMBOL:
        at = words.find(key, at + 1, symbols[1])
    if at < 0:
        return None
    value: int = struct.unpack_from("<Q", words, at + _VALUE)[0]
    return value
