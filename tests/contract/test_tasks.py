"""What every task does."""

import os
from pathlib import Path

import pytest

from softbench.errors import DataError
from softbench.tasks import TASKS, Task, TaskData, get_task, load_data, render_prompt
from softbench.tasks.loading import content_hash
from tests.conftest import DEFAULT_DATA

# Made in Python, and one of each sort made of YAML: test_benchmarks has them all.
NAMES = [*TASKS, "arc_easy:mcf", "arc_easy:generation", "arc_easy:cf", "boolq", "gsm8k", "trivia_qa"]


@pytest.fixture(params=NAMES)
def task(request: pytest.FixtureRequest) -> Task:
    return get_task(request.param)


@pytest.fixture
def data(task: Task) -> TaskData:
    folder = Path(os.environ.get("SOFTBENCH_DATA", DEFAULT_DATA))
    try:
        return load_data(task, folder)
    except DataError as error:
        if "no file" in str(error):
            pytest.skip(f"no data for {task.name} in {folder}: set SOFTBENCH_DATA")
        raise


def test_splits_share_no_question(data: TaskData) -> None:
    splits = [{content_hash(sample) for sample in split} for split in (data.tune, data.validation, data.test)]
    assert not splits[0] & splits[1]
    assert not splits[0] & splits[2]
    assert not splits[1] & splits[2]


def test_every_gold_comes_back_strictly_and_leniently(task: Task, data: TaskData) -> None:
    for sample in (*data.tune, *data.validation, *data.test):
        form, target = task.answer_format, render_prompt(task, sample).target
        assert form.is_right(form.parse(target, sample.choices), sample.answers), sample
        # Of a bare text, what the strict parser takes counts leniently too, whatever a reader would make of it.
        if form.name != "short_text":
            assert form.is_right(form.find(target, sample.choices), sample.answers), sample


def test_a_prompt_ends_where_the_answer_begins(task: Task, data: TaskData) -> None:
    for sample in data.test[:50]:
        prompt = render_prompt(task, sample, data.tune[:2])
        assert prompt.text == prompt.text.rstrip()
        assert prompt.target.startswith(" ")
        assert not prompt.target.startswith("  ")
        assert prompt.text.startswith(task.description)
        assert prompt.target.strip() not in prompt.text.splitlines()[-1]


def test_the_right_option_is_the_target(task: Task, data: TaskData) -> None:
    for sample in data.test:
        prompt = render_prompt(task, sample)
        if sample.gold is None:
            assert prompt.continuations == ()
        else:
            assert prompt.continuations[sample.gold] == prompt.target
            assert len(prompt.continuations) == len(sample.choices)


def test_the_answer_fits_the_token_limit_with_room(task: Task, data: TaskData) -> None:
    longest = max(len(render_prompt(task, sample).target) for sample in (*data.tune, *data.test))
    assert longest / 2 < task.max_new_tokens * 3  # English has three to four characters a token


def test_a_task_says_where_it_is_from(task: Task) -> None:
    assert task.source
    assert task.licence
    assert len(task.template_hash) == 16
