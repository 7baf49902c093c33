"""What cores print at the same time: lines stay whole, nothing is lost, the rest is untouched."""

import builtins
import io
import pickle
import sys
import threading
import types

from xladoctor.capture.simulate.belongings import own_output
from xladoctor.capture.simulate.lines import WholeLines, flush_all, whole_lines


def in_a_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def test_a_line_that_another_core_cuts_stays_whole():
    stream = io.StringIO()
    lines = WholeLines(stream)
    lines.write("loss ")
    in_a_thread(lines.write, "another\n")
    lines.write("0.5\nnext")
    assert stream.getvalue() == "another\nloss 0.5\n"
    lines.flush()
    assert stream.getvalue() == "another\nloss 0.5\nnext"


def test_a_flush_is_of_the_calling_core():
    stream = io.StringIO()
    lines = WholeLines(stream)
    lines.write("\r 10%")
    in_a_thread(lines.flush)
    assert stream.getvalue() == ""
    lines.flush()
    assert stream.getvalue() == "\r 10%"


def test_many_cores_print_at_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    together = threading.Barrier(8)

    def core(number):
        together.wait()
        for step in range(200):
            print("core", number, "step", step)

    with whole_lines():
        threads = [threading.Thread(target=core, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    printed = stream.getvalue().splitlines()
    assert sorted(printed) == sorted(f"core {n} step {s}" for n in range(8) for s in range(200))


def test_what_was_begun_is_written_at_the_end(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with whole_lines():
        in_a_thread(sys.stdout.write, "no end of line")
        assert stream.getvalue() == ""
        flush_all()
        assert stream.getvalue() == "no end of line"
        in_a_thread(sys.stdout.writelines, ["a\n", "b"])
    assert stream.getvalue() == "no end of linea\nb"
    assert sys.stdout is stream


def test_what_the_program_puts_around_it_stays(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)

    class Tee:
        def __init__(self, to):
            self.to = to

        def write(self, text):
            return self.to.write(text)

        def flush(self):
            self.to.flush()

    with whole_lines():
        sys.stdout = tee = Tee(sys.stdout)
        print("inside")
    assert sys.stdout is tee
    print("after", "wards")
    assert stream.getvalue() == "inside\nafter wards\n"


def test_standing_in_for_the_output_ends(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    before = sys.stdout, builtins.print, type(sys), type(builtins)
    with own_output():
        assert (sys.stdout, sys.stderr, builtins.print) == (before[0], None, before[1])
        assert type(sys) is not before[2]
        builtins.print = quiet = lambda *_: None
        assert builtins.print is quiet
        builtins.print = before[1]

        class Logs:
            log = print  # no method, as the builtin

        Logs().log(end="")
        assert pickle.loads(pickle.dumps(Logs.log)) is print
    assert (sys.stdout, builtins.print, type(sys), type(builtins)) == before
    assert vars(sys)["stdout"] is before[0]


def test_all_else_is_asked_of_the_stream():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    lines = WholeLines(stream)
    assert lines.encoding == "latin-1"
    assert lines.isatty() is False
    assert lines.buffer is stream.buffer


def test_what_only_the_first_core_prints_is_not_cut_by_others(monkeypatch):
    """``xm.master_print`` has settled where it writes to when it was defined."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)

    def master_print(*args, fd=stream):
        print(*args, file=fd)

    module = types.SimpleNamespace(master_print=master_print)
    monkeypatch.setitem(sys.modules, "torch_xla.core.xla_model", module)
    with whole_lines():
        sys.stdout.write("another's ")
        in_a_thread(master_print, "loss", 0.5)
        assert stream.getvalue() == "loss 0.5\n"
        in_a_thread(master_print.__kwdefaults__["fd"].write, "begun")
        assert stream.getvalue() == "loss 0.5\n"
    assert master_print.__kwdefaults__ == {"fd": stream}
