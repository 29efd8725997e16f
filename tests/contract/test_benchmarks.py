"""Every built-in benchmark: real rows where they are at hand, rows of the same fields for the others."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from softbench.answer_formats import AnswerFormat, answer_format, fitting_formats
from softbench.tasks import formulations, get_task, load_data, render_prompt
from softbench.tasks.definition import builtin_definitions
from softbench.types import Formulation, Sample

# Lines of the files in the data folder: train or dev, validation, test.
ROWS = {
    "arc_challenge": (1119, 299, 1172),
    "arc_easy": (2251, 570, 2376),
    "boolq": (2028, 0, 1242),
    "commonsense_qa": (9741, 0, 1221),
    "gsm8k": (7473, 0, 1319),
    "mmlu": (285, 1531, 14042),
    "openbookqa": (4957, 500, 500),
    "svamp": (671, 0, 329),
    "trivia_qa": (4766, 0, 3227),
}
# One row of the hub's fields, the words that its prompt must hold, and the right answer under `generation`.
OTHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "hellaswag": (
        {"ind": 4, "activity_label": "Rowing", "ctx_a": "A crew sits", "ctx_b": "down.", "ctx": "A crew sits down.",
         "endings": ["They row.", "They fly.", "They sing.", "They swim."], "source_id": "x", "split": "val",
         "split_type": "indomain", "label": "2"},
        "Rowing: A crew sits down.", "They sing.",
    ),
    "piqa": (
        {"goal": "Dry a shirt", "sol1": "Hang it up.", "sol2": "Soak it.", "label": 0},
        "Question: Dry a shirt", "Hang it up.",
    ),
    "winogrande": (
        {"sentence": "The cup fell off the table as _ was tipped.", "option1": "cup", "option2": "table",
         "answer": "2"},
        "off the table as _ was tipped.", "table",
    ),
    "sciq": (
        {"question": "What do plants make?", "distractor1": "salt", "distractor2": "sand", "distractor3": "iron",
         "correct_answer": "sugar", "support": "Plants make sugar from light."},
        "Question: What do plants make?", "sugar",
    ),
    "social_i_qa": (
        {"context": "Kim fed the cat.", "question": "How does the cat feel?", "answerA": "hungry", "answerB": "full",
         "answerC": "lost", "label": "2"},
        "Kim fed the cat.\nQuestion: How does the cat feel?", "full",
    ),
    "natural_questions": (
        {"question": "who wrote the origin of species", "answer": ["Charles Darwin", "Darwin"]},
        "Question: who wrote the origin of species?", "Charles Darwin",
    ),
}  # fmt: skip
CASES = [(name, one) for name in ROWS for one in formulations(name)]


def test_there_are_nine_real_benchmarks_and_six_others() -> None:
    assert {*ROWS, *OTHERS} == set(builtin_definitions())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "formulation"), CASES)
def test_every_row_loads_and_its_gold_comes_back_in_every_format_that_fits(
    name: str, formulation: Formulation, data_dir: Path
) -> None:
    task = get_task(name, formulation)
    data = load_data(task, data_dir)
    # What is left out is left out as a later split has it, and for no other reason.
    found = (
        len(data.tune) + data.dropped["tune"] if name != "mmlu" else len(data.shots) + data.dropped["shots"],
        len(data.validation) + data.dropped["validation"] if name != "mmlu" else len(data.tune) + data.dropped["tune"],
        len(data.test),
    )
    assert found == ROWS[name]
    assert isinstance(task.answer_format, AnswerFormat)
    kind, reasoning = task.answer_format.kind, task.answer_format.reasoning
    names = ["option_text"] if formulation == "cf" else fitting_formats(kind)
    assert len(names) >= (1 if formulation == "cf" else 3)
    for sample in (*data.tune, *data.validation, *data.shots, *data.test):
        for form in (answer_format(one, kind, reasoning) for one in names):
            text = form.render(sample.answers[0], sample.reasoning)
            assert form.is_right(form.parse(text, sample.choices), sample.answers), (form.name, sample)
            if form.name != "short_text":
                assert form.is_right(form.find(text, sample.choices), sample.answers), (form.name, sample)


def test_mmlu_has_57_subjects_each_with_shots_of_its_own(data_dir: Path) -> None:
    data = load_data(get_task("mmlu"), data_dir)
    subjects = {sample.group for sample in data.test}
    assert len(subjects) == 57
    assert {sample.group for sample in data.shots} == {sample.group for sample in data.tune} == subjects


def test_leaks_that_are_known_are_found(data_dir: Path) -> None:
    """Questions of the test split that stand in the tuning split too, word for word."""
    leaks = {}
    for name in ("arc_easy", "arc_challenge", "openbookqa"):
        task = get_task(name)
        raw = task.load(data_dir)
        asked = {" ".join(next(iter(one.fields.values())).casefold().split()) for one in raw["tune"]}
        test = [" ".join(next(iter(one.fields.values())).casefold().split()) for one in raw["test"]]
        leaks[name] = sum(one in asked for one in test)
        data = load_data(task, data_dir)
        left = {" ".join(next(iter(one.fields.values())).casefold().split()) for one in data.tune}
        assert not left & set(test)
    assert leaks == {"arc_easy": 7, "arc_challenge": 7, "openbookqa": 23}


def local(folder: Path, name: str) -> tuple[Path, Sample]:
    """A data root in which each split of a benchmark has one row, and a sample of the test split."""
    row, _, _ = OTHERS[name]
    (folder / name).mkdir()
    for split in ("train", "validation", "test"):
        varied = {key: f"{split} {value}" if key in ("ctx", "goal", "sentence", "question") else value
                  for key, value in row.items()}  # fmt: skip
        (folder / name / f"{split}.jsonl").write_text(json.dumps(varied) + "\n")
    return folder, load_data(get_task(name, "generation"), folder).test[0]


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_rows_of_the_hubs_fields_become_prompts(name: str, tmp_path: Path) -> None:
    _, words, answer = OTHERS[name]
    folder, sample = local(tmp_path, name)
    assert sample.answers[0] == answer
    for formulation in formulations(name):
        task = get_task(name, formulation)
        data = load_data(task, folder)
        prompt = render_prompt(task, data.test[0])
        for word in words.split():
            assert word in prompt.text
        gold = data.test[0].gold
        if gold is not None:
            assert data.test[0].choices[gold] == answer
            assert prompt.continuations[gold] == prompt.target
        if formulation == "cf":
            assert prompt.target == f" {answer}"
            assert "A. " not in prompt.text


@pytest.mark.parametrize("name", sorted(builtin_definitions()))
def test_a_benchmark_names_its_paper_and_its_licence(name: str) -> None:
    task = get_task(name)
    assert "arXiv" in task.source
    assert task.licence
    assert dataclasses.replace(task, question="x").template_hash != task.template_hash
