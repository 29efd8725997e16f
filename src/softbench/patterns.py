"""Regular expressions that others wrote, with a time limit: on the wrong text, some take longer than anyone lives."""

import functools
import math
import re
import warnings
from typing import Any

import regex

from softbench.errors import TaskError

SECONDS = 10.0
MOST_REPEATED = 100_000
"""What the counts of a pattern, `{4}` or `{1,3}`, may come to when multiplied: it takes memory for each of these."""
_COUNT = re.compile(r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}")


def check_pattern(source: str) -> None:
    """Raise ValueError, saying why, where `source` is no regular expression as Python has them."""
    counts = [max(1, *(int(count[:10] or 0) for count in pair)) for pair in _COUNT.findall(source)]
    if math.prod(counts) > MOST_REPEATED:
        raise ValueError(f"it repeats what it repeats more than {MOST_REPEATED:,} times")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may mean something else one day
            re.compile(source)
        _compiled(source)
    except (re.error, regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def fullmatch(source: str, text: str) -> Any | None:
    """The match of all of `text`, or None. Raises TaskError where that takes longer than SECONDS."""
    try:
        return _compiled(source).fullmatch(text, timeout=SECONDS)
    except TimeoutError:
        raise _too_long(source) from None


def find_each(source: str, text: str) -> list[Any]:
    """All matches in `text`, from left to right. Raises TaskError where that takes longer than SECONDS."""
    try:
        return list(_compiled(source).finditer(text, timeout=SECONDS))
    except TimeoutError:
        raise _too_long(source) from None


class TimedPattern:
    """A compiled pattern for code that calls its `findall`, `search` or `match`."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(_compiled(self._source, self._flags), name)
        if not callable(method):
            return method

        def timed(*args: Any, **settings: Any) -> Any:
            try:
                return method(*args, **settings, timeout=SECONDS)
            except TimeoutError:
                raise _too_long(self._source) from None

        return timed


class _Timed:
    """Stands in for the module `re` in code of others: `re.sub(pattern, ...)` and the like, with the time limit."""

    compile = TimedPattern
    escape = staticmethod(re.escape)

    def __getattr__(self, name: str) -> Any:
        if name.isupper():
            return getattr(regex, name)
        return lambda pattern, *args, flags=0, **settings: getattr(TimedPattern(pattern, flags), name)(
            *args, **settings
        )


TIMED = _Timed()


@functools.lru_cache(maxsize=512)
def _compiled(source: str, flags: int = 0) -> Any:
    return regex.compile(source, flags)


def _too_long(source: str) -> TaskError:
    return TaskError(
        f"the pattern {source!r} takes longer than {SECONDS:g} s on a text; write one that does not try so many ways, "
        "without a repetition inside a repetition"
    )
