"""libtpu through jaxlib: the only module that knows their private names. Runs in worker processes.

Written for jaxlib 0.7.1 and libtpu 0.0.21, the pair that torch_xla 2.9 names in its extras. A name
that is missing in another version is one sentence (:class:`AdapterError`) that says which.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.tpu import donors

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What jaxlib must have; asked for once, so that a missing name is named.
_NAMES = (
    "load_pjrt_plugin", "initialize_pjrt_plugin", "get_default_c_api_topology", "XlaComputation",
    "CompileOptions", "DeviceAssignment", "DeviceList", "XlaRuntimeError", "mlir",
)  # fmt: skip

#: Passes that only make the machine code better: they run after memory is assigned and cycles are
#: estimated, and their work is thrown away here. Found by compiling (docs/tpu-accuracy.md has the
#: table); cycles and memory are the same without them, the code is larger by a tenth.
CHEAPER: tuple[tuple[str, bool | int], ...] = (
    ("xla_jf_enable_pipelining", False),
    ("xla_jf_hlo_deduplication", True),
    ("xla_jf_load_cse_and_s2l_forwarding", False),
    ("xla_jf_vliw_fuel", 0),
    ("xla_jf_vliw_scheduler", False),
    ("xla_jf_xlu_optimizer", False),
    ("xla_tpu_consider_lp_llo_scheduler", False),
)

#: How libtpu says that it does not know an option, or knows it as something else.
_UNKNOWN_OPTION = ("No such compile option", "flag type mismatch", "While setting option")


class AdapterError(Exception):
    """jaxlib and libtpu cannot be used here; the message is one sentence."""


class Compiler:
    """The TPU compiler.

    Raises:
        AdapterError: jaxlib or libtpu is missing, or not as this module knows them.
    """

    def __init__(self) -> None:
        library = _library()
        # No TPU is there, and none is to be looked for; other processes may compile too.
        os.environ.update(
            TPU_SKIP_MDS_QUERY="1",
            ALLOW_MULTIPLE_LIBTPU_LOAD="1",
            JAX_PLATFORMS="cpu",
            TPU_LOG_DIR="disabled",  # else some files for each graph in /tmp/tpu_logs, for ever
            TPU_LIBRARY_PATH=str(library),
        )
        try:
            self._jax: Any = importlib.import_module("jaxlib._jax")
            self._numpy: Any = importlib.import_module("numpy")
        except ImportError as error:
            raise AdapterError(f"jaxlib cannot be used ({error})") from error
        missing = [name for name in _NAMES if not hasattr(self._jax, name)]
        if missing:
            raise AdapterError(f"this jaxlib has no {missing[0]}: install jaxlib 0.7.1")
        try:
            self._jax.load_pjrt_plugin("tpu", str(library), None)
            self._jax.initialize_pjrt_plugin("tpu")
        except Exception as error:
            raise AdapterError(f"libtpu cannot be loaded ({_first_line(error)})") from error
        self._devices: dict[str, list[Any]] = {}
        self._cheaper = list(CHEAPER)

    def compile(
        self,
        module: bytes,
        topology: str,
        options: Mapping[str, Any],
        replicas: int,
        dump: Path | None = None,
        partitions: int = 1,
    ) -> Program:
        """Compile a serialized ``HloModuleProto`` for some cores of a topology.

        Args:
            module: The graph.
            topology: As libtpu names it ("v3:2x2x1").
            options: Arguments of the topology besides its name.
            replicas: How many cores run the graph together.
            dump: Folder for the compiler's buffer assignment.
            partitions: Among how many cores the compiler divides the graph (SPMD); then the
                program is that of one of them. Results without a sharding get the one that fits,
                as torch_xla has it: without that, those that take the memory of an input are
                refused.

        Raises:
            AdapterError: The topology does not exist or is too small.
            RuntimeError: The compiler refuses the graph; the message is its own.
        """
        devices = self._of(topology, options)
        if replicas * partitions > len(devices):
            cores = replicas * partitions
            raise AdapterError(f"{topology} has {len(devices)} cores, and the graph is of {cores}")
        chosen = devices[: replicas * partitions]
        given = donors.donated(module)
        if partitions > 1:
            module, aliased = donors.without_aliases(module)
            given |= aliased
        computation = self._jax.XlaComputation(module)
        mlir = self._jax.mlir.xla_computation_to_mlir_module(computation)
        text = donors.mark(mlir if isinstance(mlir, str) else mlir.decode(), given)
        settings = self._jax.CompileOptions()
        settings.num_replicas, settings.num_partitions = replicas, partitions
        ids = self._numpy.array([device.id for device in chosen])
        settings.device_assignment = self._jax.DeviceAssignment.create(
            ids.reshape(replicas, partitions)
        )
        if partitions > 1:
            build = settings.executable_build_options
            build.num_partitions, build.use_spmd_partitioning = partitions, True
            build.allow_spmd_sharding_propagation_to_output = [True]
        if dump is not None:
            debug = settings.executable_build_options.debug_options
            debug.xla_dump_to = str(dump)
            debug.xla_dump_hlo_as_text = True
        settings.env_option_overrides = list(self._cheaper)
        where = self._jax.DeviceList(tuple(chosen))

        try:
            made = chosen[0].client.compile(text.encode(), where, settings)
        except self._jax.XlaRuntimeError as error:
            if not self._cheaper or not any(words in str(error) for words in _UNKNOWN_OPTION):
                raise
            self._cheaper = settings.env_option_overrides = []
            made = chosen[0].client.compile(text.encode(), where, settings)
        return Program(made, self._jax.XlaRuntimeError)

    def _of(self, topology: str, options: Mapping[str, Any]) -> list[Any]:
        key = f"{topology} {sorted(options.items())}"
        if key not in self._devices:
            try:
                made = self._jax.get_default_c_api_topology("tpu", topology, dict(options))
            except Exception as error:
                raise AdapterError(
                    f"libtpu has no topology {topology} ({_first_line(error)})"
                ) from error
            self._devices[key] = made._make_compile_only_devices()
        return self._devices[key]


class Program:
    """A compiled graph."""

    def __init__(self, made: Any, error: type[Exception]) -> None:
        self._made = made
        self._error = error

    def memory(self) -> dict[str, int]:
        """Bytes of arguments, output, aliased, temporary and code."""
        stats = self._made.get_compiled_memory_stats()
        return {
            "arguments": stats.argument_size_in_bytes,
            "output": stats.output_size_in_bytes,
            "aliased": stats.alias_size_in_bytes,
            "temporary": stats.temp_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
        }

    def flops(self) -> float | None:
        """Floating point operations, as XLA counts them; None if it does not say."""
        try:
            counted = self._made.cost_analysis()
        except self._error:
            return None
        found = counted.get("flops") if isinstance(counted, dict) else None
        return float(found) if found is not None and found >= 0 else None

    def text(self) -> str:
        """The optimized graph, in the order of its schedule."""
        return str(self._made.hlo_modules()[0].to_string())


def _library() -> Path:
    spec = importlib.util.find_spec("libtpu")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        library = Path(folder) / "libtpu.so"
        if library.is_file():
            return library
    raise AdapterError("libtpu is not installed")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
