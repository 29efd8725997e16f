"""Every error that softbench raises on purpose.

    SoftbenchError
    ├── SpecError        (ValueError)   a flag or a spec file asks for something impossible
    ├── TaskError        (ValueError)   a task is unknown, or its definition contradicts itself
    ├── DataError        (ValueError)   a benchmark's rows are missing or malformed
    ├── ModelError       (ValueError)   a model can't be found, read or used
    ├── PromptTooLong    (ValueError)   a prompt does not fit the model's context
    ├── SoftPromptError  (ValueError)   a soft prompt's file is damaged or made for another model
    ├── TuningError      (ArithmeticError)  tuning met a loss that is not finite
    ├── OutputError      (OSError)      results can't be written where they should go
    └── ClusterError     (RuntimeError) a Ray cluster can't be used, or loses workers again and again

A message says what came, what was wanted and what to do. The command line prints it on one line and exits with 2.
"""

import difflib
from collections.abc import Iterable

MOST_SHOWN = 1000


class SoftbenchError(Exception):
    """Base of all errors that a caller may want to catch."""


class SpecError(SoftbenchError, ValueError):
    """A flag or a spec file asks for something impossible."""


class TaskError(SoftbenchError, ValueError):
    """A task is unknown, or its definition contradicts itself."""


class DataError(SoftbenchError, ValueError):
    """A benchmark's rows are missing or malformed."""


class ModelError(SoftbenchError, ValueError):
    """A model can't be found, read or used."""


class PromptTooLong(SoftbenchError, ValueError):
    """A prompt, its soft prompt and its answer do not fit the model's context."""


class SoftPromptError(SoftbenchError, ValueError):
    """A soft prompt's file is damaged, or was made for another model."""


class TuningError(SoftbenchError, ArithmeticError):
    """Tuning met a loss that is not finite."""


class OutputError(SoftbenchError, OSError):
    """Results can't be written where they should go."""


class ClusterError(SoftbenchError, RuntimeError):
    """A Ray cluster can't be used, or loses workers again and again."""


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its kind where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def one_line(error: Exception) -> str:
    """An error's message on one line of at most MOST_SHOWN characters, without any that could steer a terminal."""
    text = " ".join(str(error).split())
    cut = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ... ({len(text):,} characters)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'boolq'?` where something known is near, else the known words themselves."""
    options = sorted(known)
    lowered = {option.lower(): option for option in options}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=1)
    if near:
        return f"; did you mean {lowered[near[0]]!r}?"
    return f"; known: {', '.join(options)}"
