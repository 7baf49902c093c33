"""Whether the agent gets into every Python of a command, and leaves it as it was.

torch_xla is an invented package here; its real one is used in test_profile_xla.py.
"""

from __future__ import annotations

import os
import re
import sys

import pytest

from xladoctor.capture import rundir

#: Prints whether the agent's package was loaded in this process.
SAY = "import sys, torch_xla; print('agent', '_xladoctor' in sys.modules, torch_xla.READY)\n"
IN = "agent True True"


@pytest.fixture(autouse=True)
def _fake(program):
    program.fake_torch_xla()


def test_script(program):
    program.write("x.py", SAY)
    assert program.run("x.py").stdout.strip() == IN


def test_module_and_inline_code(program):
    program.write("lib/pack/__main__.py", SAY)
    assert program.run("-m", "pack").stdout.strip() == IN
    assert program.run("-c", SAY).stdout.strip() == IN


def test_submodule_import_attaches_too(program):
    program.write("lib/torch_xla/core.py", "")
    program.write("x.py", "import torch_xla.core\n" + SAY)
    assert program.run("x.py").stdout.strip() == IN


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing(program, method):
    program.write(
        "x.py",
        f"""
        import multiprocessing as mp
        def child():
            import sys, torch_xla
            print('agent', '_xladoctor' in sys.modules, torch_xla.READY, flush=True)
        if __name__ == "__main__":
            process = mp.get_context({method!r}).Process(target=child)
            process.start(); process.join()
        """,
    )
    assert program.run("x.py").stdout.strip() == IN


def test_exec_keeps_the_agent(program):
    program.write("x.py", "import os, sys\nos.execv(sys.executable, [sys.executable, 'y.py'])\n")
    program.write("y.py", SAY)
    assert program.run("x.py").stdout.strip() == IN


def test_without_torch_xla_nothing_is_loaded_and_only_a_mark_is_left(program):
    program.write("x.py", "import sys; print('_xladoctor' in sys.modules, 'json' in sys.modules)\n")
    assert program.run("x.py").stdout.strip() == "False False"
    assert [entry.name for entry in program.run_dir.iterdir()] == ["attached"]


def test_the_module_looks_untouched(program):
    program.write(
        "x.py",
        """
        import torch_xla, importlib
        print(type(torch_xla.__loader__).__name__, type(torch_xla.__spec__.loader).__name__)
        importlib.reload(torch_xla)
        print(torch_xla.READY)
        """,
    )
    assert program.run("x.py").stdout.split() == ["SourceFileLoader", "SourceFileLoader", "True"]


def test_users_sitecustomize_runs_and_keeps_its_name(program):
    program.write("lib/sitecustomize.py", "import sys\nsys.mine = 'ran'\nNAME = 'the user'\n")
    program.write("x.py", "import sitecustomize, sys; print(sys.mine, sitecustomize.NAME)\n" + SAY)
    assert program.run("x.py").stdout.splitlines() == ["ran the user", IN]


def test_path_of_the_program_is_what_it_would_be(program):
    program.write("x.py", "import sys; print(sys.path)\n")
    plain = program.run(
        "x.py", environ={**program.environ(), "PYTHONPATH": str(program.folder / "lib")}
    )
    assert program.run("x.py").stdout == plain.stdout


def test_agent_that_cannot_start_leaves_a_word_and_the_program_goes_on(program):
    # The invented torch_xla has none of the internals, so the agent cannot start.
    program.write("x.py", SAY + "print('done')\n")
    done = program.run("x.py")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines() == [IN, "done"]
    (word,) = rundir.not_started(program.run_dir)
    assert "Error" in word


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_that_keep_the_agent_out(program, flag):
    program.write(
        "x.py", "import sys; print('_xladoctor' in sys.modules, '_Finder' in str(sys.meta_path))\n"
    )
    assert program.run(flag, "x.py").stdout.strip() == "False False"


def test_bootstrap_imports_nothing_of_its_own(program):
    """What site loads with the bootstrap is what site loads without it."""
    ask = "import sys; print(sorted(m for m in sys.modules if not m.startswith('_distutils')))"
    plain = program.run("-c", ask, environ={**program.environ(), "PYTHONPATH": ""}).stdout
    ours = program.run("-c", ask).stdout
    extra = set(re.findall(r"'([^']+)'", ours)) - set(re.findall(r"'([^']+)'", plain))
    assert extra <= {"sitecustomize"}, sys.version


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's /proc")  # noqa: PTH112
def test_a_process_without_torch_xla_starts_no_thread_and_keeps_nothing_open(program):
    ask = (
        "import os; print(len(os.listdir('/proc/self/task')), sorted(os.listdir('/proc/self/fd')))"
    )
    plain = program.run("-c", ask, environ={**program.environ(), "PYTHONPATH": ""}).stdout
    ours = program.run("-c", ask).stdout
    assert ours == plain
    assert ours.startswith("1 ")


def test_users_usercustomize_is_the_one_that_is_found(program):
    program.write("lib/usercustomize.py", "import sys\nsys.mine_too = 'ran'\n")
    # Environments made by venv leave it out, so it is asked for here.
    program.write("x.py", "import site, sys; site.execusercustomize(); print(sys.mine_too)\n")
    assert program.run("x.py").stdout == "ran\n"
