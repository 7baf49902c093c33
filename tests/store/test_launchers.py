"""Who a host is, from what launchers set."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

from xladoctor import catalogue
from xladoctor.store.launchers import identity

ROWS = catalogue.table("launchers")["launcher"]


def test_rows_have_a_source_and_a_host():
    for row in ROWS:
        assert row["host"], row
        assert row["source"], row
    assert len({row["name"] for row in ROWS}) == len(ROWS)


def test_torchrun():
    one = identity(
        {"TORCHELASTIC_RUN_ID": "job-41", "GROUP_RANK": "3", "GROUP_WORLD_SIZE": "8",
         "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "2"}, "node-a",
    )  # fmt: skip
    assert (one.run, one.label, one.hosts, one.restart) == ("job-41", "3.1", 8, 2)
    assert one.launcher == "torchrun"


def test_torchrun_sets_these_variables():
    """The installed torch is the source of the row."""
    found = importlib.util.find_spec("torch")
    if found is None:
        pytest.skip("torch is not installed")
    agent = "distributed/elastic/agent/server/local_elastic_agent.py"
    text = (pathlib.Path(found.origin).parent / agent).read_text()
    row = next(row for row in ROWS if row["name"] == "torchrun")
    for name in (*row["run"], *row["host"], row["hosts"], row["local"], row["local_size"],
                 row["restart"]):  # fmt: skip
        assert f'"{name}"' in text, name


def test_a_default_name_of_torchrun_is_no_name_and_slurm_around_it_has_one():
    one = identity(
        {"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
         "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "SLURM_JOB_ID": "77", "SLURM_NODEID": "1"},
        "node-a",
    )  # fmt: skip
    assert (one.run, one.label, one.hosts) == ("77", "1", 2)


def test_slurm():
    one = identity(
        {"SLURM_JOB_ID": "77", "SLURM_NODEID": "0", "SLURM_NNODES": "3", "SLURM_LOCALID": "0",
         "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_RESTART_COUNT": "1"}, "node-a",
    )  # fmt: skip
    assert (one.run, one.label, one.hosts, one.restart) == ("77", "0", 3, 1)
    several = identity(
        {"SLURM_NODEID": "0", "SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x3)"}, "node-a"
    )
    assert several.label == "0.2"


def test_slices_of_a_jobset():
    one = identity(
        {"JOBSET_NAME": "bert", "JOB_COMPLETION_INDEX": "3", "MEGASCALE_SLICE_ID": "1",
         "TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, "bert-slice-1-3-xyz",
    )  # fmt: skip
    assert (one.run, one.label, one.launcher) == ("bert", "1-3", "JobSet")


def test_ray():
    one = identity(
        {"RAY_JOB_ID": "02000000", "TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, "worker-1"
    )
    assert (one.run, one.label, one.hosts, one.launcher) == ("02000000", "1", 2, "Ray")


def test_gcloud_sets_nothing_and_the_machine_is_named_by_its_number():
    one = identity({}, "t1v-n-0abc12de-w-13")
    assert (one.run, one.label, one.hosts, one.launcher) == (None, "13", None, None)


def test_a_machine_that_nothing_numbers_is_known_by_its_name():
    assert identity({}, "my machine").label == "my-machine"


def test_ours_come_first_and_names_are_fit_for_folders():
    one = identity(
        {"XLADOCTOR_RUN": "../my run", "XLADOCTOR_HOST": "7", "SLURM_NODEID": "1"}, "node-a"
    )
    assert (one.run, one.label) == ("my-run", "7")
