"""Signals end a run wherever it is."""

import os
import signal
import subprocess
import sys
import time

import pytest

from softbench.interrupts import Stopped, raise_on_signals

NUMBERS = (signal.SIGINT, signal.SIGTERM)

IN_A_DESTRUCTOR = """
import os, sys, time
from softbench.interrupts import Stopped, raise_on_signals

class Dying:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(1000):
            pass

raise_on_signals()
try:
    Dying()
    for _ in range(500):
        time.sleep(0.01)
except Stopped as stopped:
    print(stopped.word, stopped.code)
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_meets_a_destructor_is_not_lost(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_DESTRUCTOR, str(int(number))], capture_output=True, text=True, check=True
    )
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
    assert done.stdout == f"{word} {128 + number}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_raised_where_the_program_is(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {one: signal.getsignal(one) for one in NUMBERS}
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    try:
        raise_on_signals()
        with pytest.raises(Stopped) as raised:  # noqa: PT012  # it is raised behind the call, at any moment
            os.kill(os.getpid(), number)
            time.sleep(1)
        assert raised.value.code == 128 + number
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
