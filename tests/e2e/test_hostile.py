"""Corrupt and hostile files: each is refused in one line, does nothing else, and takes no time (tests/hostile.py)."""

import random
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import datasets
import pytest

from tests.hostile import KINDS, Input, Kind, called, corpus, make_workshop, secret_beside, state_of

SECRET = "nobody's business"
SECONDS = 20
"""What an input may take; the slowest took 3 on a machine with nothing else to do."""

OF_ANOTHER_VALUE = {
    "1e400", "a byte order mark", "a line twice", "a name that leads out", "a number of 401 digits", "a part missing",
    "an absolute name", "and another type", "another part missing", "another type", "another type again",
    "controls and turned writing", "lines of nothing", "ten million characters in a line",
}  # fmt: skip
"""What may come out as a good file with another value, where nothing hangs on that value."""

HARMLESS = {
    "a key twice": {"data of the harness"},  # pyarrow takes the last
    "an output path on a file": {"spec"},  # `estimate` writes nothing
    "an unknown key": {"mapping"},  # it may be of another pair of runs
    "controls": {"mapping"},
    "nested deep and closed": {"data of the harness"},
    "null": {"data of the harness"},
    "NUL bytes": {"data, CSV"},
    "truncated": {"records of a run"},  # the samples that are missing are done again
    "truncated elsewhere": {"records of a run"},
    "its last line torn": {"records of a run"},
    "empty": {"records of a run"},
    "a link to nowhere": {"records of a run"},
    "whole numbers": {"model, weights"},
}  # fmt: skip
"""What else may be taken, by damage: kinds of file."""

MADE_ANEW = {
    "cache, configuration", "cache, weights", "costs of a run", "state of a tuning", "tuned vectors of a run",
    "tuned vectors of a run, card", "tuned adapter of a run", "tuned adapter of a run, card",
}  # fmt: skip
"""Kinds of file that a run makes again, or does without, where they do not fit: it could begin without them."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workshop of good files."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SOFTBENCH_CACHE", str(folder / "cache"))
        make_workshop(folder)
        yield folder


@pytest.fixture
def workshop(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, with a secret beside it."""
    folder = tmp_path / "workshop"
    shutil.copytree(good, folder, symlinks=True)
    secret_beside(folder).write_text(SECRET)
    monkeypatch.setenv("SOFTBENCH_CACHE", str(folder / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(folder / "hf"))
    monkeypatch.setitem(sys.modules, "trackio", MagicMock())
    return folder


class TookTooLong(BaseException):
    """No code that catches exceptions catches this one."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in whatever runs after so many seconds."""

    def stop(number: int, frame: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refuses(one: Input, workshop: Path) -> None:
    """Do the damage, give the file to its command, and check what comes of it."""
    one.do(workshop)
    before = state_of(workshop)
    with limited(SECONDS):
        outcome = called(one.command, workshop)
    assert state_of(workshop) == before
    assert secret_beside(workshop).read_text() == SECRET
    assert (outcome.written, outcome.started) == ((), ())
    said = outcome.stdout + outcome.stderr
    assert SECRET not in said
    assert "Traceback" not in said
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(said)
    if outcome.code == 0 and may_pass(one):
        return
    assert outcome.code == 2, said
    assert len(outcome.errors) == 1, said


def may_pass(one: Input) -> bool:
    """Whether the command may do its work with such a file."""
    harmless = one.kind.name in HARMLESS.get(one.damage, ())
    return harmless or one.damage in OF_ANOTHER_VALUE or one.kind.name in MADE_ANEW


ALL = corpus()
FEW = [random.Random(kind.name).choice([one for one in ALL if one.kind is kind]) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_good_file_is_taken_by_every_command_that_reads_it(kind: Kind, workshop: Path) -> None:
    """Else a command might refuse for another reason than the damage."""
    for command in kind.commands:
        outcome = called(command.split(), workshop)
        assert outcome.code == 0, outcome.stderr


@pytest.mark.parametrize("one", FEW, ids=str)
def test_a_bad_file_is_refused_in_one_line(one: Input, workshop: Path) -> None:
    refuses(one, workshop)


@pytest.mark.slow
@pytest.mark.parametrize("one", [one for one in ALL if one not in FEW], ids=str)
def test_a_bad_file_is_refused_in_one_line_whatever_is_bad_about_it(one: Input, workshop: Path) -> None:
    refuses(one, workshop)


def test_the_corpus_is_of_the_size_that_the_documentation_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"{len(ALL):,} inputs" in page
    assert len({str(one) for one in ALL}) == len(ALL)
