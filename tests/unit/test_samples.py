"""The samples that a report holds: all of them, or one in so many where they are more than a page can hold."""

import pytest

import softbench.report.samples as samples
from softbench.report.samples import block
from tests.runs import finished_job


def test_all_samples_are_there_where_they_are_few() -> None:
    jobs = [finished_job("m", "t", label, 0.5, 0.5, count=7) for label in ("zero_shot", "soft_prompt")]
    packed = block(jobs)
    assert (packed["asked"], packed["oneIn"]) == (7, 1)
    assert [one["id"] for one in packed["samples"]] == [record.sample.id for record in jobs[0].records]
    for job, columns in zip(jobs, packed["jobs"], strict=True):
        said = [record.completion.text for record in job.records if record.completion is not None]
        assert [packed["texts"][number] for number in columns["completion"]] == said


@pytest.mark.parametrize(("most", "one_in", "there"), [(14, 1, 7), (13, 2, 4), (5, 3, 3), (1, 14, 1)])
def test_of_many_samples_one_in_so_many_is_there_for_every_job(
    most: int, one_in: int, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_RECORDS", most)
    jobs = [finished_job("m", "t", label, 0.5, 0.5, count=7) for label in ("zero_shot", "soft_prompt")]
    packed = block(jobs)
    assert (packed["asked"], packed["oneIn"]) == (7, one_in)
    shown = jobs[0].records[::one_in]
    assert [one["id"] for one in packed["samples"]] == [record.sample.id for record in shown]
    assert len(shown) == there
    for job, columns in zip(jobs, packed["jobs"], strict=True):
        assert columns["answer"] == [record.answer for record in job.records[::one_in]]


def test_a_page_without_samples_is_one_too() -> None:
    assert block([finished_job("m", "t", "zero_shot", 0.5, 0.5, count=0)])["samples"] == []
