"""Signals that ask a run to end, as an exception that lets it keep what it has done."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_hook_before = sys.unraisablehook


class Stopped(BaseException):
    """A signal asked the process to end. No Exception: what handles faults must not take it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.word = "interrupted" if number == signal.SIGINT else "terminated"
        """What happened, in a word."""
        self.code = 128 + number
        """The exit code that says so."""


def raise_on_signals() -> None:
    """From here on, SIGINT and SIGTERM raise Stopped in the main thread, wherever it is."""
    sys.unraisablehook = _again
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    # Schedulers send SIGTERM to a process and again to its group: the second must not cut off what the first began.
    # Who presses Ctrl-C again wants to be gone.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped(number)


def _again(lost: Any) -> None:
    """Send a signal again whose exception met a destructor or a weak reference's callback: Python drops it there."""
    if not isinstance(lost.exc_value, Stopped):
        _hook_before(lost)
        return
    raise_on_signals()
    threading.Timer(0.01, os.kill, (os.getpid(), lost.exc_value.number)).start()  # when that has returned
