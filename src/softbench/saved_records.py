"""A finished job's records, in their file: each is read when it is asked for, and none stays.

A record with its texts takes some kilobytes, and a job may have any number. Its outcome is the same record without the
texts: all that is counted, a tenth as large, so that those of a whole job fit in memory.
"""

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from softbench.errors import DataError
from softbench.record_reading import iter_records, line_to_record
from softbench.types import Prompt, Record, Sample
from softbench.untrusted import check_is_file

MOST_HELD = 500_000
"""Outcomes that a Shelf keeps, at some 300 bytes each; those of one job it keeps however many they are."""


_NO_PROMPT = Prompt("", "", "")


class Shelf:
    """Keeps the outcomes of the jobs that were asked for last."""

    def __init__(self) -> None:
        self._held: dict[Path, tuple[Record, ...]] = {}  # the newest last
        self._same: dict[Hashable, Any] = {}

    def take(self, path: Path) -> tuple[Record, ...] | None:
        """What is kept of the file, if it is."""
        found = self._held.pop(path, None)
        if found is not None:
            self._held[path] = found
        return found

    def outcome(self, record: Record) -> Record:
        """A record without its texts; what it has in common with others is there once."""

        def shared(value: Any) -> Any:
            return self._same.setdefault((type(value), value), value)

        sample = record.sample
        said = (sample.id, sample.answers, sample.choices, sample.gold, sample.group, sample.cluster)
        known = self._same.get((Sample, said)) or Sample(sample.id, {}, *said[1:4], "", *said[4:])
        correct = record.choice_correct
        return replace(
            record,
            sample=self._same.setdefault((Sample, said), known),
            method=shared(record.method),
            prompt=_NO_PROMPT,
            completion=record.completion and replace(record.completion, text=""),
            answer=shared(record.answer),
            lenient_answer=shared(record.lenient_answer),
            choice_scores=(),
            choice_correct=self._same.setdefault((dict, tuple(correct.items())), correct),
            top_token=None,
            top_options=shared(record.top_options),
        )

    def keep(self, path: Path, outcomes: tuple[Record, ...]) -> None:
        """Keep a job's outcomes, and fewer of other jobs'."""
        while self._held and sum(map(len, self._held.values())) + len(outcomes) > MOST_HELD:
            del self._held[next(iter(self._held))]
            self._same = {}  # what of it is still in use lives on
        self._held[path] = outcomes


class SavedRecords(Sequence[Record]):
    """The records of a job in the order of the test split, read from their file one by one.

    Each is said to be by `method`, where that is given. Reading raises DataError where the file can't be read, or has
    not `count` records. Without a shelf, outcomes are read whenever they are asked for.
    """

    def __init__(self, path: Path, count: int, method: str | None = None, shelf: Shelf | None = None) -> None:
        self._path, self._count, self._method, self._shelf = path, count, method, shelf
        self._begins: array[int] | None = None  # of the lines, in the order of the test split

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        begins = self._lines()
        if isinstance(place, slice):
            return list(self._read(begins[place]))
        return next(self._read([begins[place]]))

    def __iter__(self) -> Iterator[Record]:
        return self._read(self._lines())

    @property
    def outcomes(self) -> Sequence[Record]:
        """The records without prompts, completions' texts, fields and the scores of single options."""
        shelf = self._shelf or Shelf()
        found = shelf.take(self._path)
        if found is None:
            found = self._scan(shelf)
            shelf.keep(self._path, found)
        return found

    def _lines(self) -> "array[int]":
        if self._begins is None:
            self._scan(None)
        assert self._begins is not None  # a scan finds it, or raises
        return self._begins

    def _scan(self, shelf: Shelf | None) -> tuple[Record, ...]:
        """Read all lines once: where each begins, and with a shelf the outcomes."""
        places: list[tuple[int, int]] = []
        found: list[Record] = []
        try:
            check_is_file(self._path)
            with self._path.open("rb") as file:
                for begin, record in iter_records(file, str(self._path)):
                    places.append((record.doc_id, begin))
                    if shelf is not None:
                        found.append(shelf.outcome(self._named(record)))
        except OSError as error:
            raise self._unreadable(error) from error
        if len(places) != self._count:
            raise DataError(
                f"{self._path} has {len(places)} records where {self._count} are wanted; run the same command again"
            )
        self._begins = array("q", [begin for _, begin in sorted(places)])
        return tuple(sorted(found, key=lambda record: record.doc_id))

    def _read(self, begins: Iterable[int]) -> Iterator[Record]:
        try:
            with self._path.open("rb") as file:
                for begin in begins:
                    file.seek(begin)
                    yield self._named(line_to_record(file.readline()))
        except OSError as error:
            raise self._unreadable(error) from error
        except ValueError as error:
            raise DataError(f"{self._path} was changed while it was read; run the same command again") from error

    def _named(self, record: Record) -> Record:
        return record if self._method is None else replace(record, method=self._method)

    def _unreadable(self, error: OSError) -> DataError:
        return DataError(f"{self._path} can't be read: {error.strerror}; run the same command again")


def outcomes_of(records: Sequence[Record]) -> Sequence[Record]:
    """The records for counting: their outcomes where they lie in a file, and otherwise as they are."""
    return records.outcomes if isinstance(records, SavedRecords) else records
