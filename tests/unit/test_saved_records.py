"""A finished job's records come from their file in order, one by one, and their outcomes count the same."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import softbench.saved_records
from softbench.errors import DataError
from softbench.record_reading import iter_records
from softbench.records import RecordFile, record_to_line
from softbench.saved_records import SavedRecords, Shelf, outcomes_of
from softbench.stats import chance, clustered_stderrs, groups_of, metrics_of
from softbench.stats.compare import compare
from softbench.types import Record
from tests.runs import finished_job
from tests.unit.test_records import STOP, records, simple


def saved(path: Path, found: list[Record], **settings: Any) -> SavedRecords:
    RecordFile(path).append(found, STOP, 16)
    return SavedRecords(path, len(found), **settings)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read whole, as they are."""
    read: list[str] = []

    def reading(file: Any, name: str) -> Iterator[tuple[int, Record]]:
        read.append(Path(name).stem)
        return iter_records(file, name)

    monkeypatch.setattr(softbench.saved_records, "iter_records", reading)
    return read


def test_records_come_in_the_order_of_the_samples(tmp_path: Path) -> None:
    found = saved(tmp_path / "a", [simple(place, f"text {place}") for place in (4, 2, 3)], method="shown")
    in_order = [replace(simple(place, f"text {place}"), method="shown") for place in (2, 3, 4)]
    assert len(found) == 3
    assert list(found) == in_order
    assert list(found) == in_order  # as often as one likes
    assert (found[0], found[-1], found[1:]) == (in_order[0], in_order[2], in_order[1:])
    assert list(zip(found, found, strict=True)) == list(zip(in_order, in_order, strict=True))
    with pytest.raises(IndexError):
        found[3]


def test_an_empty_line_is_no_record(tmp_path: Path) -> None:
    lines = [record_to_line(simple(place), STOP, 16) for place in (1, 0)]
    (tmp_path / "a").write_text("\n" + "\n".join(lines), encoding="utf-8")
    assert list(SavedRecords(tmp_path / "a", 2)) == [simple(0), simple(1)]


def test_outcomes_count_as_the_records_do(tmp_path: Path) -> None:
    before, after = (
        saved(tmp_path / name, list(finished_job("m", "t", name, following, 0.6, 200, words=20).records))
        for name, following in (("zero_shot", 0.4), ("soft_prompt", 0.9))
    )
    for statistic in (metrics_of, chance, clustered_stderrs, groups_of):
        assert statistic(before.outcomes) == statistic(list(before))
    assert compare(before.outcomes, after.outcomes) == compare(list(before), list(after))
    assert [one.sample.id for one in before.outcomes] == [one.sample.id for one in before]


@given(records())
def test_an_outcome_has_all_but_the_texts(record: Record) -> None:
    shelf = Shelf()
    outcome = shelf.outcome(record)
    assert metrics_of([outcome]) == metrics_of([record])
    same = ("doc_id", "method", "seed", "status", "answer", "correct", "lenient_answer", "lenient_correct")
    for name in (*same, "choice_correct", "answer_mass", "top_options"):
        assert getattr(outcome, name) == getattr(record, name)
    assert (outcome.sample.id, outcome.sample.answers) == (record.sample.id, record.sample.answers)
    assert (outcome.completion is None) == (record.completion is None)
    texts = [outcome.prompt.text, outcome.sample.reasoning, outcome.completion.text if outcome.completion else ""]
    assert [*texts, outcome.sample.fields] == ["", "", "", {}]
    assert shelf.outcome(replace(record, seed=None)).sample is outcome.sample


def test_outcomes_stay_and_those_of_few_jobs(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    first, second = (saved(tmp_path / name, [simple(0), simple(1)], shelf=shelf) for name in ("a", "b"))
    for _ in range(3):
        assert len(first.outcomes) == len(second.outcomes) == 2
    assert reads == ["a", "b"]
    monkeypatch.setattr(softbench.saved_records, "MOST_HELD", 3)
    shelf = Shelf()
    first, second = (SavedRecords(tmp_path / name, 2, shelf=shelf) for name in ("a", "b"))
    for job in (first, first, second, second, first):
        assert [record.doc_id for record in job.outcomes] == [0, 1]
    assert reads[2:] == ["a", "b", "a"]
    monkeypatch.setattr(softbench.saved_records, "MOST_HELD", 1)
    assert len(second.outcomes) == 2  # one job's, however many


def test_records_that_are_no_file_are_their_own_outcomes() -> None:
    made = (simple(0), simple(1))
    assert outcomes_of(made) is made


def test_what_can_t_be_read_is_one_clear_error(tmp_path: Path) -> None:
    found = saved(tmp_path / "a", [simple(0), simple(1)])
    with pytest.raises(DataError, match="a has 2 records where 3 are wanted; run the same command again"):
        list(SavedRecords(tmp_path / "a", 3))
    assert len(list(found)) == 2
    (tmp_path / "a").write_bytes(b"x" * (tmp_path / "a").stat().st_size)
    with pytest.raises(DataError, match="a was changed while it was read; run the same command again"):
        list(found)
    (tmp_path / "a").unlink()
    with pytest.raises(DataError, match="a can't be read: No such file"):
        list(found)
    with pytest.raises(DataError, match="a can't be read: No such file"):
        found.outcomes  # noqa: B018  # reading is what is tested
