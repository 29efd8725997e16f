import dataclasses
import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import LETTER
from softbench.errors import DataError, TaskError
from softbench.tasks import Task, get_task, load_data, render_prompt, shuffle_labels
from softbench.tasks.loading import content_hash, samples_hash
from softbench.types import Formulation, Sample, Split


def sample(text: str, answer: str = "A", choices: tuple[str, ...] = ("one", "two")) -> Sample:
    return Sample(text, {"question": text}, (answer,), choices, 0)


def task_of(**splits: list[Sample]) -> Task:
    rows: dict[Split, list[Sample]] = {name: splits.get(name, []) for name in ("tune", "validation", "test")}
    return Task(
        name="mine",
        formulation="mcf",
        instruction="Choose.",
        question="{{ question }}\n{% for letter, text in choices %}\n{{ letter }}. {{ text }}\n{% endfor %}\nAnswer:",
        answer_format=AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER),
        stop=("\n",),
        max_new_tokens=16,
        load=lambda data_dir: rows,
        source="here",
        licence="none",
    )


def test_there_are_193_capitals_and_118_elements() -> None:
    for name, count in (("capitals", 193), ("elements", 118)):
        data = load_data(get_task(name), None)
        assert len(data.tune) + len(data.validation) + len(data.test) == count
        assert len({sample.id for split in (data.tune, data.validation, data.test) for sample in split}) == count


def test_elements_are_numbered_without_gaps() -> None:
    data = load_data(get_task("elements"), None)
    numbers = [int(one.answers[0].rpartition(" ")[2]) for one in (*data.tune, *data.validation, *data.test)]
    assert sorted(numbers) == list(range(1, 119))


def test_arithmetic_is_right_and_the_same_each_time() -> None:
    data, again = (load_data(get_task("arithmetic"), None) for _ in range(2))
    assert data == again
    assert (len(data.tune), len(data.validation), len(data.test)) == (700, 100, 400)
    for one in (*data.tune, *data.validation, *data.test):
        left, sign, right = one.fields["expression"].split()
        worked = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign]
        assert one.answers == (str(worked),)


def test_arc_easy_loses_the_tuning_rows_that_are_in_a_later_split(data_dir: Path) -> None:
    for name in ("arc_easy:mcf", "arc_easy:generation", "arc_easy:cf"):
        data = load_data(get_task(name), data_dir)
        assert (len(data.tune), len(data.validation), len(data.test)) == (2242, 570, 2376)
        assert data.dropped == {"tune": 9, "validation": 0, "shots": 0}


def test_a_prompt_reads_as_people_would_write_it() -> None:
    task = task_of()
    shot, asked = sample("Is it?", "B"), sample("Is it not?")
    prompt = render_prompt(task, asked, [shot])
    assert prompt.text == (
        "Choose. Reply in exactly this form: The answer is (LETTER).\n\n"
        "Is it?\nA. one\nB. two\nAnswer: The answer is (B).\n\n"
        "Is it not?\nA. one\nB. two\nAnswer:"
    )  # fmt: skip
    assert prompt.target == " The answer is (A)."
    assert prompt.continuations == (" The answer is (A).", " The answer is (B).")


def test_braces_and_tags_in_data_are_text() -> None:
    asked = sample("What is {{ 7 * 7 }} or {% raw %} or <b>?")
    assert asked.id in render_prompt(task_of(), asked).text


def test_a_template_can_not_leave_the_sandbox() -> None:
    hostile = dataclasses.replace(task_of(), question="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(TaskError, match="template failed on sample 'x'"):
        render_prompt(hostile, sample("x"))


def test_a_template_that_asks_for_a_missing_field_is_an_error() -> None:
    with pytest.raises(TaskError, match="'passage' is undefined"):
        render_prompt(dataclasses.replace(task_of(), question="{{ passage }}"), sample("x"))


def test_what_is_in_a_later_split_is_dropped_from_an_earlier_one() -> None:
    task = task_of(
        tune=[sample("one"), sample("  TWO "), sample("three")],
        validation=[sample("Three"), sample("four")],
        test=[sample("two"), sample("four")],
    )
    data = load_data(task, None)
    assert [one.id for one in data.tune] == ["one"]
    assert [one.id for one in data.validation] == ["Three"]
    assert [one.id for one in data.test] == ["two", "four"]
    assert data.dropped == {"tune": 2, "validation": 1, "shots": 0}


def test_without_a_split_to_tune_on_half_of_validation_serves() -> None:
    validation = [sample(str(number)) for number in range(9)]
    data = load_data(task_of(validation=validation, test=[sample("t")]), None)
    assert (len(data.tune), len(data.validation), data.tune_from) == (4, 5, "half of validation")
    assert {one.id for one in (*data.tune, *data.validation)} == {one.id for one in validation}
    again = load_data(task_of(validation=validation[::-1], test=[sample("t")]), None)
    assert again.tune == data.tune


def test_shots_that_are_in_test_are_dropped() -> None:
    rows: dict[Split, list[Sample]] = {
        "tune": [sample("a")],
        "validation": [],
        "shots": [sample("b"), sample("t")],
        "test": [sample("T")],
    }
    data = load_data(dataclasses.replace(task_of(), load=lambda data_dir: rows), None)
    assert [one.id for one in data.shots] == ["b"]
    assert data.dropped["shots"] == 1


def test_the_fields_that_make_a_question_the_same_can_be_named() -> None:
    one, other = (Sample(passage, {"question": "q", "passage": passage}, ("A",), ("x", "y"), 0) for passage in "ab")
    assert content_hash(one) != content_hash(other)
    assert content_hash(one, ("question",)) == content_hash(other, ("question",))


@pytest.mark.parametrize("name", ["capitals", "gsm8k"])
def test_shuffled_answers_are_other_questions_answers(name: str, data_dir: Path) -> None:
    task = get_task(name)
    tune = load_data(task, data_dir).tune
    shuffled = shuffle_labels(task, tune, np.random.default_rng(0))
    assert shuffled == shuffle_labels(task, tune, np.random.default_rng(0))
    assert [one.fields for one in shuffled] == [one.fields for one in tune]
    assert Counter(one.answers for one in shuffled) == Counter(one.answers for one in tune)
    assert sum(one == other for one, other in zip(shuffled, tune, strict=True)) < len(tune) / 20
    by_answers = {one.answers: one.reasoning for one in tune}
    assert len(by_answers) < len(tune) or all(by_answers[one.answers] == one.reasoning for one in shuffled)


@pytest.mark.parametrize("formulation", ["mcf", "generation"])
def test_shuffled_options_stay_among_a_questions_own(formulation: Formulation, data_dir: Path) -> None:
    task = get_task("arc_easy", formulation)
    tune = load_data(task, data_dir).tune
    shuffled = shuffle_labels(task, tune, np.random.default_rng(1))
    assert Counter(one.gold for one in shuffled) == Counter(one.gold for one in tune)
    for one in shuffled:
        assert one.gold is not None
        assert one.answers[0] == ("ABCDE"[one.gold] if formulation == "mcf" else one.choices[one.gold])
    same = sum(one.gold == other.gold for one, other in zip(shuffled, tune, strict=True))
    assert same / len(tune) == pytest.approx(0.25, abs=0.04)


def test_options_in_another_order_are_the_same_question() -> None:
    assert content_hash(sample("q", choices=("one", "two"))) == content_hash(sample("q", choices=("two", "one")))


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"test": [sample("a")]}, "no tune samples, and no validation samples to take them from"),
        ({"test": [sample("a")], "validation": [sample("b")]}, "test samples are never tuned on"),
        ({"tune": [sample("a")]}, "has no test samples"),
        ({"tune": [sample("a")], "test": [sample("a")]}, "none is left to tune on"),
        ({"tune": [sample("a", answer="C")], "test": [sample("b")]}, "'a': the gold answer 'C' does not come back"),
    ],
)
def test_data_that_can_not_be_trusted_are_refused(splits: dict[str, list[Sample]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(task_of(**splits), None)


def test_every_accepted_answer_is_checked() -> None:
    two = Sample("a", {"question": "a"}, ("A", "Z"), ("one", "two"), 0)
    with pytest.raises(DataError, match="'a': the gold answer 'Z' does not come back"):
        load_data(task_of(tune=[two], test=[sample("b")]), None)


def test_a_split_hash_sees_golds_and_options() -> None:
    first = samples_hash([sample("q")])
    assert first == samples_hash([sample("q")])
    assert first != samples_hash([sample("q", answer="B")])
    assert first != samples_hash([sample("q", choices=("two", "one"))])
    assert first != samples_hash([sample("Q")])


def test_a_split_hash_is_that_of_all_its_samples_as_one_json_list() -> None:
    samples = [sample("q"), sample("é", answer="B")]
    parts = [[one.id, dict(one.fields), one.answers, one.choices, one.gold, "", ""] for one in samples]
    for of_split in ([], parts[:1], parts):
        whole = hashlib.sha256(json.dumps(of_split, sort_keys=True).encode()).hexdigest()
        assert samples_hash(samples[: len(of_split)]) == whole[:16]


def test_a_field_called_choices_or_self_is_no_trouble() -> None:
    odd = Sample("s", {"question": "q", "choices": "mine", "self": "x"}, ("A",), ("one", "two"), 0)
    assert "A. one" in render_prompt(task_of(), odd).text


def test_a_stop_string_inside_a_gold_is_refused() -> None:
    task = dataclasses.replace(task_of(tune=[sample("a")], test=[sample("b")]), stop=("is",))
    with pytest.raises(DataError, match="stop string 'is' stands in the gold answer"):
        load_data(task, None)


def test_an_unknown_task_is_named_with_the_nearest() -> None:
    with pytest.raises(TaskError, match="task 'Capitol' is unknown; did you mean 'capitals'?"):
        get_task("Capitol")
    with pytest.raises(TaskError, match="known: arc_challenge, arc_easy, "):
        get_task("zzz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no file .*train.jsonl"),
        (b"{", "line 1: not JSON"),
        (b"[]", "line 1: a JSON object was wanted, not list"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"id": "\\ud83d"}', "line 1: not JSON"),
        (b"[" * 100_000, "line 1: not JSON"),
        (
            b'{"id": "x", "question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "B"}',
            "row 'x' does not fit",
        ),
        (b'{"id": "x", "question": "q"}', "row 'x' does not fit: 'choices' is undefined"),
        (
            b'{"id": "x", "question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"}',
            "row 'x' does not fit",
        ),
    ],
)
def test_damaged_rows_are_one_clear_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    folder = tmp_path / "arc_easy"
    folder.mkdir()
    good = {"id": "g", "question": "g", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "1"}
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps(good))
    (folder / "train.jsonl").unlink()
    if content is not None:
        (folder / "train.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_data(get_task("arc_easy"), tmp_path)


def test_a_missing_data_folder_is_asked_for() -> None:
    with pytest.raises(DataError, match="give --data-dir DIR .or set SOFTBENCH_DATA."):
        load_data(get_task("arc_easy"), None)


def test_labels_that_are_digits_become_letters(tmp_path: Path) -> None:
    folder = tmp_path / "arc_easy"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        row = {"id": split, "question": split, "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n\n")
    [test] = load_data(get_task("arc_easy"), tmp_path).test
    assert (test.answers, test.gold) == (("B",), 1)


def test_line_separators_inside_a_row_do_not_break_it(tmp_path: Path) -> None:
    folder = tmp_path / "arc_easy"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        text = f"{split}\u2028\u0085"
        row = {"id": split, "question": text, "choices": {"text": ["a ", "b"], "label": ["A", "B"]}, "answerKey": "A"}
        (folder / f"{split}.jsonl").write_text("\ufeff" + json.dumps(row, ensure_ascii=False), encoding="utf-8")
    [test] = load_data(get_task("arc_easy:cf"), tmp_path).test
    assert test.choices == ("a", "b")
    assert "\u2028" in test.fields["question"]


def test_a_data_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no file .*file/arc_easy/train.jsonl"):
        load_data(get_task("arc_easy"), tmp_path / "file")
