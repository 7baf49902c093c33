"""TorchTPU's log, as torch_tpu 0.2.0 wrote it (on a PJRT plug-in for CPUs; paths changed)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xladoctor.cli.app import main
from xladoctor.diagnosis.diagnose import diagnose
from xladoctor.errors import SourceError
from xladoctor.readings.sources import load
from xladoctor.readings.torchtpu_text import DeviceLogReader

LOG = Path(__file__).parent / "torchtpu" / "run.log"


def read(text):
    reader = DeviceLogReader("log")
    for line in text.splitlines(keepends=True):
        reader.feed(line)
    return reader.finish()


def reported(text):
    return diagnose(load(["-"], text))


def test_a_log_as_it_was_written():
    log = read(LOG.read_text())
    assert log.fallbacks == {"aten::median": 5, "aten::kthvalue.values": 5}
    [(operation, frame)] = log.missing.items()
    assert (operation, frame[0], frame[2]) == ("aten::median", "/home/user/program.py", "<module>")
    assert sorted(told.category for told in log.warnings) == [
        "TorchTpu/ApiStage/ExperimentalApi/",
        "TorchTpu/Correctness/",
        "TorchTpu/Performance/TcMalloc/",
    ]
    assert (log.requests, log.hits, log.compilations) == ((7,), (4,), (3,))
    assert log.sizes == {"tt_jit_mul": 1, "tt_jit_sum": 1}


def test_the_report_of_it(capsys):
    assert main(["report", str(LOG), "--output-format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"]["compilations"] == 3
    assert told["summary"]["fallbacks"] == {"aten::median": 5, "aten::kthvalue.values": 5}
    found = [(item["code"], item["count"]) for item in told["findings"]]
    assert sorted(found) == [
        ("XLA501", 1), ("XLA501", 5), ("XLA501", 5), ("XLA863", 1), ("XLA863", 1),
    ]  # fmt: skip
    raised = next(item for item in told["findings"] if "raised" in item["message"])
    assert raised["locations"][0]["filename"] == "/home/user/program.py"
    median = [item["suggestion"] for item in told["findings"] if "median" in item["message"]]
    assert all("torch.sort" in advice for advice in median)


@pytest.mark.parametrize("prefix", ["[rank3]: ", "2026-11-22 10:00:00 worker-1 | ", "\x1b[33m"])
def test_prefixes_of_launchers_do_not_matter(prefix):
    text = "".join(prefix + line for line in LOG.read_text().splitlines(keepends=True))
    log = read(text)
    assert log.fallbacks == read(LOG.read_text()).fallbacks
    assert len(log.warnings) == 3
    assert log.compilations == (3,)


def test_a_program_that_is_compiled_for_one_size_after_the_other_is_told():
    # Invented: the lines are those of the log, with other sizes.
    line = (
        "Dumping StableHLO module due to cache miss for key: CompilationCacheKey{{shapeless_key="
        "d08d, dimensions_key={size}, compile_options_key=e6, id_key=}}\nmodule @tt_jit_mm {{\n"
    )
    report = reported("".join(line.format(size=f"{number:x}") for number in range(20)))
    assert [(item.code, item.count) for item in report.findings] == [("XLA210", 20)]
    assert "tt_jit_mm was compiled for 20 sizes" in report.findings[0].message
    assert reported(line.format(size="1") * 20).findings == ()


def test_several_processes_each_tell_their_own_counts():
    end = (
        "CompilationCache final stats: num_cache_reqs={}\nnum_cache_hits={} \nnum_compilations={}\n"
    )
    report = reported(end.format(100, 90, 10) + end.format(104, 92, 12))
    assert report.summary.compilations == 12
    assert (
        report.about["Compilation cache"]
        == "204 requests, 182 hits, 22 compilations in 2 processes"
    )
    assert not report.summary.conclusive
    assert report.findings == ()


def test_text_without_any_of_it_is_refused_as_before():
    assert read("TPU v5e is fast\nnum_cache_sizes=3\n") is None
    with pytest.raises(SourceError, match="nothing that TorchTPU logs"):
        load(["-"], "step 3 loss 0.2\n")


def test_a_log_of_endless_kinds_stays_bounded():
    text = "".join(
        f"operator 'aten::op{number}' is not implemented for TPU. Falling back to CPU\n"
        for number in range(10_500)
    )
    assert len(read(text).fallbacks) == 10_000


#: Invented, in the form of the logger in TorchNeuron's public sources; with a launcher's prefix.
NEURON = """
[rank0]: [Neuron] [INFO] [NEFF_CACHE] Cache MISS for key: 5f1e_add
[rank1]: [Neuron] [INFO] [NEFF_CACHE] Cache MISS for key: 77aa_mm
[rank0]: [Neuron] [INFO] [NEFF_CACHE] Storing NEFF for key: 5f1e_add
[rank0]: [Neuron] [INFO] [NEFF_CACHE] Cache HIT for key: 5f1e_add
"""


def test_the_cache_of_torchneuron_is_counted():
    log = read(NEURON)
    assert (log.requests, log.hits, log.compilations) == ((3,), (1,), (2,))
    summary = reported(NEURON).summary
    assert summary.compilations == 2
    assert summary.fallbacks is None  # its logger drops what it would say of them
