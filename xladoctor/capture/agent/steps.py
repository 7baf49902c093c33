"""When a core's step is over, and when what it did is written.

A step is over when the graph has ended that an optimizer's step belongs to; in eager mode, when the
optimizer has stepped; in a program that says so itself, when it says so. A loop without an
optimizer has iterations instead (``Account.end_of_iteration``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import xla

if TYPE_CHECKING:
    from .account import Account
    from .process import Process

#: Seconds between two writings of the metrics report (1 ms each) at step boundaries.
METRICS_EVERY = 5.0

#: Rows of a core's first steps, in which it compiles, are written when they are over; those of
#: later ones may be held back for a moment.
WRITTEN_AT_ONCE = 100


class Steps:
    """Counts the steps of all cores of one process and writes their rows.

    Args:
        process: Where the rows go.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._metrics_written = 0.0

    def optimizer(self, account: Account) -> None:
        """An optimizer is stepping."""
        if account.pending and account.read_since_step:
            self.over(account)  # this loop's graphs end at reads only
        self._write_iterations(account)
        account.pending += 1
        account.read_since_step = False
        account.pieces.clear()

    def over(self, account: Account) -> None:
        """The steps that are pending are done."""
        account.step_took(account.pending)
        account.steps += account.pending
        account.pending = 0
        account.read_since_step = False
        self._write_if_due(account)

    def marked(self, account: Account) -> None:
        """The program itself says that a step is over: its optimizers' steps count no longer."""
        if not account.marked:
            self._write_iterations(account)
            account.count_marks()
            self._process.write({"e": "marked", "core": account.core})
        account.pending = 1
        self.over(account)

    def marker(self, account: Account) -> None:
        """The program has ended its graph."""
        account.graph_over("step")
        if account.pending:
            self.over(account)
        elif account.ran_since_iteration and not account.in_rendezvous and not xla.in_dynamo():
            if not account.has_batch and xla.before_first_batch():
                account.ran_since_iteration = False
            elif account.end_of_iteration(at_marker=True):
                self._write_if_due(account)

    def next_batch(self, account: Account) -> None:
        """A loader is asked for a batch."""
        if account.end_of_iteration(at_marker=False):
            self._write_if_due(account)

    def end_core(self, account: Account, *, failed: bool) -> None:
        """Write what is left of a core, and that it has ended."""
        account.ended = True
        account.graph_over("end")
        account.steps += account.pending
        account.pending = 0
        row = account.take_row(after_last=True)
        end: dict[str, Any] = {
            "e": "core-end",
            "core": account.core,
            "t": account.booked_until,
            "steps": account.steps,
            "iterations": account.iterations,
            "failed": failed,
        }
        self._process.write(*([] if row is None else [row.event()]), end)
        self._process.write_metrics()

    def _write_if_due(self, account: Account) -> None:
        account.book()
        now = account.booked_until
        if account.row_due():
            row = account.take_row(after_last=not account.steps)
            if row is not None:
                if account.steps > WRITTEN_AT_ONCE:
                    self._process.hold(row.event, now)
                else:
                    self._process.write(row.event())
        if now - self._metrics_written > METRICS_EVERY:
            self._metrics_written = now
            self._process.write_metrics()

    def _write_iterations(self, account: Account) -> None:
        """Iterations of a loop without an optimizer belong to no step of what comes now."""
        if account.turns_unwritten and not account.pending:
            row = account.take_row(after_last=True)
            if row is not None:
                self._process.write(row.event())
