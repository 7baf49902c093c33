"""Runs upstream's tests as on a TPU, as far as they ask; each test method is written down.

On ``PYTHONPATH`` of the processes that ``execution`` starts, behind xladoctor's own. What a test
file asks about its device is answered for a TPU of one host, to that file only: torch_xla itself
and the simulation see what there is. Nothing of the test files is changed or copied.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import traceback

_TESTS = os.environ.get("CONFORMANCE_TESTS", "")
_CORES = int(os.environ.get("CONFORMANCE_CORES", "1"))

#: What is said of the TPU: a v4, where dynamo and all dtypes are supported, one process for a host.
_TPU = {
    "version": 4,
    "num_tpu_workers": 1,
    "num_logical_cores_per_chip": 1,
    "num_available_chips": _CORES,
    "num_available_devices": _CORES,
    "num_expected_global_devices": _CORES,
}

_OF_A_FUNCTION = 0x1  # CO_OPTIMIZED: the code of a function, not of a module or class body


class _Yes(int):
    """A comparison with the device's kind that is to let a test run, whatever it expects."""

    def __new__(cls):
        return super().__new__(cls, 1)


class _AnyKind(str):
    """The device's kind in a decorator, where "CPU", "TPU" and "not TPU" all are to run."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return _Yes()

    def __ne__(self, other):
        return _Yes()


def _asked_by_a_test(depth=2):
    frame = sys._getframe(depth)
    return os.path.realpath(frame.f_code.co_filename).startswith(_TESTS), frame


def _widen_kind(module, name, in_functions):
    original = getattr(module, name)

    def kind(*args, **kwargs):
        by_test, frame = _asked_by_a_test()
        if not by_test:
            return original(*args, **kwargs)
        if not frame.f_code.co_flags & _OF_A_FUNCTION:
            return _AnyKind("TPU")
        return "TPU" if in_functions else original(*args, **kwargs)

    setattr(module, name, kind)


def _widen_number(module, name, value):
    original = getattr(module, name)

    def number(*args, **kwargs):
        return value if _asked_by_a_test()[0] else original(*args, **kwargs)

    setattr(module, name, number)


def _widen():
    import torch_xla.core.xla_model as xm
    from torch_xla import runtime
    from torch_xla._internal import tpu

    _widen_kind(xm, "xla_device_hw", in_functions=True)
    _widen_kind(runtime, "device_type", in_functions=False)
    for name, value in _TPU.items():
        if hasattr(tpu, name):
            _widen_number(tpu, name, value)


def _skips_less():
    """A condition that only asks for the kind of device skips nothing."""
    import unittest

    skip_if = unittest.skipIf

    def widened_if(condition, reason):
        return skip_if(False if isinstance(condition, _Yes) else condition, reason)

    unittest.skipIf = unittest.case.skipIf = widened_if


def _write(**row):
    with open(os.environ["CONFORMANCE_LOG"], "a") as log:  # noqa: PTH123 - early in each Python
        log.write(json.dumps(row) + "\n")


def _note_tests():
    """Write down the begin and the end of each test method, and leave out those that are done."""
    import unittest

    original = unittest.TestCase.run
    done = set(json.loads(os.environ.get("CONFORMANCE_DONE", "[]")))

    def run(self, result=None):
        name = self.id().partition(".")[2]
        if result is None or name in done:
            return original(self, result) if result is None else result
        kinds = ("failures", "errors", "skipped", "expectedFailures")
        before = {kind: len(getattr(result, kind)) for kind in kinds}
        _write(begin=name)
        try:
            return original(self, result)
        finally:
            new = {kind: getattr(result, kind)[before[kind] :] for kind in kinds}
            failed = new["failures"] + new["errors"]
            text = "\n".join(str(one[1]) for one in failed or new["skipped"])
            outcome = "failed" if failed else "skipped" if new["skipped"] else "passed"
            _write(end=name, outcome=outcome, text=text[-4000:])

    unittest.TestCase.run = run


class _Finder(importlib.abc.MetaPathFinder):
    """Widens as soon as torch_xla was imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch_xla":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            try:
                _widen()
            except Exception:  # noqa: BLE001 - said in the output of the test
                traceback.print_exc()

        spec.loader.exec_module = exec_module
        return spec


if "CONFORMANCE_LOG" in os.environ:
    sys.meta_path.insert(0, _Finder())
    _skips_less()
    # Cores run no test methods; under torchrun each process runs all of them, and is one core.
    if "--multiprocessing-fork" not in sys.orig_argv and "TORCHELASTIC_RUN_ID" not in os.environ:
        _note_tests()
