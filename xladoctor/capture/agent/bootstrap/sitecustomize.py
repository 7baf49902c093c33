"""Gets the agent into every Python of the profiled command; imported by ``site`` at its start.

The launcher puts this folder first on ``PYTHONPATH``. Every Python pays for this file, so it
imports only ``sys`` and ``os``, which ``site`` has loaded already; the agent itself is loaded
after torch_xla or torch_tpu was imported, and never otherwise. The ``sitecustomize`` that this one
shadows runs as if this one were not there.
"""

# mypy: ignore-errors
# Every import here is paid by every Python of the command, so there is no typing to check with.
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _without_here(path):
    return [entry for entry in path if os.path.abspath(entry or os.curdir) != _HERE]


class _Finder:
    """Sees the imports of some modules go by; their real loaders do the work."""

    looking = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        after = _AFTER.get(name)
        if after is None or cls.looking:
            return None
        cls.looking = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                if finder is cls or find is None:
                    continue
                spec = find(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, after)
                    return spec
            return None
        finally:
            cls.looking = False


class _Loader:
    """Runs the real loader, then what is to follow; leaves no trace of itself on the module."""

    def __init__(self, inner, after):
        self._inner = inner
        self._after = after

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create_module(self, spec):
        return self._inner.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        self._after(module)


def _load():
    """Load ``xladoctor/capture/`` by its path as the package ``_xladoctor``.

    By path, because xladoctor need not be installed in the environment of the command.
    """
    if "_xladoctor" in sys.modules:
        return
    import importlib.util

    folder = os.path.dirname(os.path.dirname(_HERE))
    spec = importlib.util.spec_from_file_location(
        "_xladoctor", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["_xladoctor"] = package
    spec.loader.exec_module(package)


def _boot(_module):
    """Start the agent in a process that has just imported torch_xla."""
    try:
        _load()
        from _xladoctor.agent.boot import boot

        boot()
    except Exception:
        _leave_a_word()


def _boot_torch_tpu(_module):
    """Start the agent in a process that has just imported torch_tpu."""
    try:
        _load()
        from _xladoctor.agent.boot import boot_torch_tpu

        boot_torch_tpu()
    except Exception:
        _leave_a_word()


def _see_children(module):
    """Have a process of the run told that a signal ends, by the parent that waits for it.

    Such a parent (torchrun) need not import torch_xla, so the agent is not there.
    """
    for name in ("poll", "wait"):
        setattr(module.Popen, name, _seeing(getattr(module.Popen, name)))


def _seeing(original):
    def seen(self, *args, **options):
        code = original(self, *args, **options)
        if code is not None and code < 0 and not getattr(self, "_xladoctor_told", False):
            try:
                self._xladoctor_told = True
                _load()
                from _xladoctor.agent.children import tell

                tell(os.environ["XLADOCTOR_RUN_DIR"], self.pid, -code)
            except Exception:
                pass
        return code

    seen.__name__, seen.__qualname__ = original.__name__, original.__qualname__
    seen.__doc__, seen.__wrapped__ = original.__doc__, original
    return seen


_AFTER = {"torch_xla": _boot, "torch_tpu": _boot_torch_tpu, "subprocess": _see_children}


def _leave_a_word():
    """Write why the agent could not start where the launcher will look; say nothing else."""
    try:
        import traceback

        folder = os.environ["XLADOCTOR_RUN_DIR"]
        with open(os.path.join(folder, f"not-started-{os.getpid()}.txt"), "a") as out:
            out.write(traceback.format_exc())
    except Exception:
        pass


def _leave_a_mark():
    """Let the launcher know that the agent can get into this command."""
    try:  # noqa: SIM105 - contextlib would be one more import for every Python
        os.close(os.open(os.path.join(os.environ["XLADOCTOR_RUN_DIR"], "attached"), os.O_CREAT))
    except OSError:
        pass


def _chain():
    """Run the sitecustomize that stands behind this one on the path, under its own name."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if find is None or finder is _Finder:
            continue
        spec = find("sitecustomize", sys.path)
        if spec is None or spec.loader is None:
            continue
        module = type(sys)("sitecustomize")
        module.__spec__ = spec
        module.__loader__ = spec.loader
        module.__file__ = spec.origin
        if spec.cached:
            module.__cached__ = spec.cached
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
        return


# The program sees the path it would see without us; children find us through the environment.
sys.path[:] = _without_here(sys.path)
if os.environ.get("XLADOCTOR_RUN_DIR"):
    sys.meta_path.insert(0, _Finder)
    _leave_a_mark()
_chain()
