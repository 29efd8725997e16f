"""Tasks written as YAML: what a definition may say, what is refused, and how rows become samples."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from softbench.errors import DataError, TaskError
from softbench.tasks import formulations, get_task, load_data, render_prompt, task_names
from softbench.tasks.definition import builtin_definitions
from softbench.tasks.samples import gold_index
from softbench.tasks.sources import read_file, read_hub

QUIZ = """\
task: my_quiz
data: quiz.jsonl
question: "Question: {{ question }}"
options: choices
gold: answer
"""
ROWS: list[dict[str, Any]] = [
    {"question": f"What is {n}?", "choices": [f"one {n}", f"two {n}"], "answer": n % 2} for n in range(10)
]


def write_quiz(folder: Path, definition: str = QUIZ, rows: list[dict[str, Any]] = ROWS) -> Path:
    (folder / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "quiz.yaml"
    path.write_text(definition)
    return path


def test_five_lines_make_a_task(tmp_path: Path) -> None:
    write_quiz(tmp_path)
    assert formulations("my_quiz", tmp_path) == ("mcf", "generation", "cf")
    task = get_task("my_quiz", include_path=tmp_path)
    data = load_data(task, None)
    assert (len(data.tune), len(data.validation), len(data.test)) == (4, 1, 5)
    sample = data.test[0]
    number = sample.fields["question"].removeprefix("What is ").rstrip("?")
    prompt = render_prompt(task, sample)
    assert prompt.text == (
        "Choose the right option. Reply in exactly this form: The answer is (LETTER).\n\n"
        f"Question: What is {number}?\nA. one {number}\nB. two {number}\nAnswer:"
    )
    assert prompt.target == f" The answer is ({'AB'[int(number) % 2]})."


def test_a_task_file_is_found_by_its_path_and_by_its_folder(tmp_path: Path) -> None:
    path = write_quiz(tmp_path)
    assert get_task(f"{path}:cf").template_hash == get_task("my_quiz", "cf", None, tmp_path).template_hash
    assert task_names(tmp_path)[0] == "my_quiz"
    assert task_names(tmp_path, own_only=True) == ["my_quiz"]


def test_the_rows_of_one_file_fall_into_splits_by_what_they_hold(tmp_path: Path) -> None:
    write_quiz(tmp_path)
    data = load_data(get_task("my_quiz", include_path=tmp_path), None)
    write_quiz(tmp_path, rows=ROWS[::-1])
    again = load_data(get_task("my_quiz", include_path=tmp_path), None)
    assert [one.fields for one in data.tune] == [one.fields for one in again.tune]
    assert [one.fields for one in data.test] == [one.fields for one in again.test]


def test_splits_may_lie_in_files_of_their_own_and_of_other_kinds(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS[:3]), tmp_path / "a.parquet")
    (tmp_path / "b.json").write_text(json.dumps(ROWS[3:5]))
    with (tmp_path / "c.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "first", "second", "answer"])
        for row in ROWS[5:]:
            writer.writerow([row["question"], *row["choices"], "AB"[row["answer"]]])
    definition = QUIZ.replace("data: quiz.jsonl", "data: {tune: [a.parquet, b.json], test: b.json}")
    task = get_task(str(write_quiz(tmp_path, definition)))
    assert [one.fields["question"] for one in load_data(task, None).test] == ["What is 3?", "What is 4?"]
    assert len(load_data(task, None).tune) == 3
    definition = QUIZ.replace("quiz.jsonl", "c.csv").replace("options: choices", "options: '[first, second]'")
    data = load_data(get_task(str(write_quiz(tmp_path, definition))), None)
    assert len((*data.tune, *data.validation, *data.test)) == 5


def test_an_open_question_has_answers(tmp_path: Path) -> None:
    definition = (
        "task: sums\ndata: quiz.jsonl\nquestion: 'Sum: {{ sum }}'\ncue: 'Value:'\nanswers: value\n"
        "reasoning: steps\nkind: number\ninstruction: Add up.\nanswer_format: boxed\n"
    )
    rows = [{"sum": f"{n} + 1", "value": float(n + 1), "steps": f"Take {n}.\n\n Add one. "} for n in range(6)]
    task = get_task(str(write_quiz(tmp_path, definition, rows)))
    sample = load_data(task, None).test[0]
    n = int(sample.answers[0]) - 1
    prompt = render_prompt(task, sample)
    assert prompt.text.startswith(
        "Add up. Reason step by step, then end with a line of exactly this form: \\boxed{NUMB"
    )
    assert prompt.text.endswith(f"Sum: {n} + 1\nValue:")
    assert prompt.target == f" Take {n}.\nAdd one.\n\\boxed{{{n + 1}}}"


def test_an_answer_may_be_a_pattern_of_ones_own(tmp_path: Path) -> None:
    definition = (
        "task: codes\ndata: quiz.jsonl\nquestion: '{{ q }}'\nanswers: a\npattern: '[A-Z]{2}-(\\d)+'\n"
        "answer_format: 'Code: {answer}!'\n"
    )
    rows = [{"q": f"q{n}", "a": f"AB-{n}"} for n in range(6)]
    task = get_task(str(write_quiz(tmp_path, definition, rows)))
    assert load_data(task, None).test
    assert task.answer_format.parse("Code: XY-12!") == "XY-12"
    assert task.answer_format.parse("Code: xy-12!") is None
    assert task.answer_format.find("I say XY-1") == "XY-1"
    with pytest.raises(DataError, match="'ab-1' does not come back"):
        load_data(get_task(str(write_quiz(tmp_path, definition, [*rows, {"q": "q", "a": "ab-1"}]))), None)


def test_a_format_may_be_chosen_for_any_task(tmp_path: Path) -> None:
    path = str(write_quiz(tmp_path))
    task = get_task(path, format_name="json")
    assert render_prompt(task, load_data(task, None).test[0]).target.startswith(' {"answer": "')
    assert get_task("capitals", format_name="boxed").answer_format.template == r"\boxed{{answer}}"
    assert "\\boxed{ANSWER}" in get_task("capitals", format_name="boxed").description
    assert get_task(path, "mcf", "Option {answer}!").answer_format.render("B") == "Option B!"
    with pytest.raises(TaskError, match="under cf the options' texts are scored"):
        get_task(path, "cf", "json")
    with pytest.raises(TaskError, match="'hash_number' is not for an answer of kind LETTER"):
        get_task(path, format_name="hash_number")


def test_a_name_says_formulation_and_format() -> None:
    assert get_task("arc_easy").name == "arc_easy:mcf"
    assert get_task("arc_easy:sentence_letter").name == "arc_easy:mcf"
    assert get_task("arc_easy:json:generation").name == "arc_easy:generation:json"
    assert get_task("arc_easy", "mcf", "Option {answer}").name.startswith("arc_easy:mcf:custom-")
    assert get_task("gsm8k").name == "gsm8k"
    assert get_task("gsm8k:boxed").name == "gsm8k:boxed"
    assert get_task("capitals:json").name == "capitals:json"
    assert get_task("arc_easy:mcf:json", "cf", "letter").name == "arc_easy:mcf:json"


def test_hashes_differ_with_what_shapes_a_prompt(tmp_path: Path) -> None:
    path = str(write_quiz(tmp_path))
    hashes = {get_task(path, one).template_hash for one in ("mcf", "generation", "cf")}
    hashes |= {get_task(path, "mcf", one).template_hash for one in ("json", "boxed", "letter")}
    hashes.add(get_task(str(write_quiz(tmp_path, QUIZ + "cue: 'Reply:'\n"))).template_hash)
    assert len(hashes) == 7


def test_options_are_shuffled_by_the_row_where_the_data_put_the_right_one_last(tmp_path: Path) -> None:
    rows = [{"id": f"r{n}", "question": f"q{n}", "right": "r", "wrong": ["a", "b", "c"]} for n in range(200)]
    definition = (
        QUIZ.replace("options: choices", "options: wrong + [right]").replace("gold: answer", "gold: '3'")
        + "shuffle_options: true\n"
    )
    task = get_task(str(write_quiz(tmp_path, definition, rows)))
    data = load_data(task, None)
    samples = (*data.tune, *data.validation, *data.test)
    assert all(one.choices[one.gold or 0] == "r" and "ABCD"[one.gold or 0] == one.answers[0] for one in samples)
    counts = [sum(one.gold == place for one in samples) for place in range(4)]
    assert min(counts) > 30
    assert load_data(task, None) == data


@pytest.mark.parametrize(
    ("value", "options", "place"),
    [(1, ["a", "b"], 1), (True, ["no", "yes"], 1), ("B", ["x", "y"], 1), ("b", ["x", "y"], 1), ("y", ["x", "y"], 1),
     ("1", ["x", "y"], 1), ("1", ["1", "2"], None), ("2", ["x", "y"], None), ("", ["x", "y"], None),
     (-1, ["x", "y"], None), ("C", ["x", "y"], None), ("z", ["x", "y"], None), (0, ["x"], None),
     ("two  words", ["two words", "y"], 0), (None, ["x", "y"], None)],
)  # fmt: skip
def test_the_right_option_is_named_by_place_letter_or_text(
    value: object, options: list[str], place: int | None
) -> None:
    if place is None:
        with pytest.raises(ValueError, match=r"must be one option's place|options; 2 to 26"):
            gold_index(value, options)
    else:
        assert gold_index(value, options) == place


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("- a", "must hold a mapping"),
        ("a: [", "is not YAML"),
        (QUIZ.replace("options", "optoins"), "key 'optoins' is unknown; did you mean 'options'?"),
        (QUIZ.replace("gold: answer\n", ""), "'options' and 'gold' go together"),
        ("task: a\ndata: b.csv\nquestion: c", "needs 'options' and 'gold' .multiple choice., or 'answers'"),
        (QUIZ.replace("data: quiz.jsonl\n", ""), "needs 'data'"),
        (QUIZ.replace("my_quiz", "../up"), "task: "),
        (QUIZ.replace("choices", "choices ||"), "options 'choices ||' is not Jinja"),
        (QUIZ.replace("{{ question }}", "{{ question"), "question .* is not Jinja"),
        (QUIZ + "formulations: [mfc]", "formulations.0: "),
        ("task: a\ndata: b.csv\nquestion: c\nanswers: d\nformulations: [cf]", "an open question has the formulation"),
        (QUIZ + "max_new_tokens: 0", "max_new_tokens: "),
        (QUIZ + "pattern: a", "'pattern' says what an open answer looks like; drop 'options'"),
        ("task: a\ndata: b.csv\nquestion: '{{ c }}'\nanswers: d\npattern: '('", "pattern '\\(' is wrong"),
        ("task: a\ndata: b.csv\nquestion: '{{ c }}'\nanswers: d\npattern: '(?i)a'", "pattern .* is wrong"),
        ("task: a\ndata: b.csv\nquestion: c\nanswers: d", "question 'c' shows no field: write {{ NAME }}"),
        (QUIZ + "same_if: [qestion]", "same_if names 'qestion'; did you mean 'question'?"),
        (QUIZ + "answers: a", "'answers' is for open questions, and 'options' makes it multiple choice; drop one"),
        (QUIZ + 'cue: "\\ud800"', "is not YAML"),
    ],
)
def test_a_definition_that_is_wrong_is_one_clear_error(tmp_path: Path, definition: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        get_task(str(write_quiz(tmp_path, definition)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, {"question": "q"}], "row .* does not fit: 'choices' finds nothing in it"),
        ([*ROWS, {"question": "q", "choices": ["a", "b"], "answer": 7}], "gold 7 must be one option's place"),
        ([*ROWS, {"question": "q", "choices": "a", "answer": 0}], "1 options; 2 to 26 are wanted"),
        ([], "has no test samples"),
        ([*ROWS, {"question": "q", "choices": ["a", None], "answer": 0}], "None is neither a text nor a number"),
        ([*ROWS, {"question": "q", "choices": ["a", ""], "answer": 0}], "an option is empty"),
        ([*ROWS, {"question": "q", "choices": ["a", ["b"]], "answer": 0}], "is neither a text nor a number"),
        ([*ROWS, {"question": float("nan"), "choices": ["a", "b"], "answer": 0}], "Out of range float values"),
    ],
)
def test_a_row_that_is_wrong_is_named(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(get_task(str(write_quiz(tmp_path, rows=rows))), None)


@pytest.mark.parametrize(
    ("question", "row"), [("{{ question + '?' }}", {"question": 1}), ("{{ question[:3] }}", {"question": None})]
)
def test_a_template_that_fails_on_one_row_is_told_with_it(tmp_path: Path, question: str, row: dict[str, Any]) -> None:
    path = write_quiz(tmp_path, QUIZ.replace("Question: {{ question }}", question), [*ROWS, {**ROWS[0], **row}])
    with pytest.raises(TaskError, match="template failed on sample '"):
        load_data(get_task(str(path)), None)


def test_values_that_json_can_not_hold_are_texts(tmp_path: Path) -> None:
    import datetime

    import pyarrow
    import pyarrow.parquet

    rows = [{**row, "question": datetime.datetime(2020, 1, place + 1)} for place, row in enumerate(ROWS)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "quiz.parquet")
    data = load_data(get_task(str(write_quiz(tmp_path, QUIZ.replace("quiz.jsonl", "quiz.parquet")))), None)
    assert data.test[0].fields["question"].startswith("2020-01-")


def test_ids_are_each_samples_own(tmp_path: Path) -> None:
    for given in (None, "same"):
        data = load_data(get_task(str(write_quiz(tmp_path, rows=[{**row, "id": given} for row in ROWS]))), None)
        assert len({sample.id for sample in data.test}) == len(data.test) == 5


def test_generators_of_an_expression_are_lists(tmp_path: Path) -> None:
    definition = "task: a\ndata: quiz.jsonl\nquestion: '{{ q }}'\nanswers: a | unique\n"
    rows = [{"q": str(n), "a": [f"x{n}", f"x{n}", "y"]} for n in range(6)]
    data = load_data(get_task(str(write_quiz(tmp_path, definition, rows))), None)
    assert [len(sample.answers) for sample in data.test] == [2, 2, 2]


def test_a_column_with_a_space_in_its_name_can_be_shown(tmp_path: Path) -> None:
    definition = QUIZ.replace("{{ question }}", "{{ row['my question'] }}")
    rows = [{**row, "my question": f"Mine {place}?"} for place, row in enumerate(ROWS)]
    task = get_task(str(write_quiz(tmp_path, definition, rows)))
    assert "Question: Mine " in render_prompt(task, load_data(task, None).test[0]).text


def test_a_composed_and_a_decomposed_accent_are_one(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "question": f"{word} {place}"} for place in range(9) for word in ("caf\u00e9", "cafe\u0301")]
    data = load_data(get_task(str(write_quiz(tmp_path, rows=rows))), None)
    assert data.dropped["tune"] + data.dropped["validation"] > 0


@pytest.mark.parametrize(
    "expression", ["''.__class__.__mro__", "row.__init__.__globals__", "cycler.__init__.__globals__"]
)
def test_an_expression_can_not_leave_the_sandbox(tmp_path: Path, expression: str) -> None:
    path = write_quiz(tmp_path, QUIZ.replace("options: choices", f'options: "{expression}"'))
    with pytest.raises(DataError, match="does not fit"):
        load_data(get_task(str(path)), None)


def test_an_empty_answer_is_refused(tmp_path: Path) -> None:
    definition = "task: a\ndata: quiz.jsonl\nquestion: '{{ q }}'\nanswers: a\n"
    for answer in ("", [], [""]):
        path = write_quiz(tmp_path, definition, [{"q": str(n), "a": answer} for n in range(4)])
        with pytest.raises(DataError, match="an answer is missing or empty"):
            load_data(get_task(str(path)), None)


def test_an_include_path_that_is_no_folder_and_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is no folder"):
        get_task("capitals", include_path=tmp_path / "nowhere")
    write_quiz(tmp_path)
    (tmp_path / "spec.yaml").write_text("models: [a]\ntasks: [my_quiz]\n")
    assert task_names(tmp_path, own_only=True) == ["my_quiz"]
    (tmp_path / "again.yml").write_text(QUIZ)
    with pytest.raises(TaskError, match="holds two tasks called 'my_quiz'"):
        get_task("my_quiz", include_path=tmp_path)


def test_unknown_formulations_are_refused() -> None:
    with pytest.raises(TaskError, match="'mfc' is neither a formulation nor an answer format; did you mean 'mcf'?"):
        get_task("arc_easy:mfc")
    with pytest.raises(TaskError, match="task 'gsm8k' has no formulation 'mcf'"):
        get_task("gsm8k:mcf")
    with pytest.raises(TaskError, match="task 'capitals' has no formulation 'cf'"):
        get_task("capitals", "cf")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "can't tell what kind of file it is"),
        ("a.json", "{}", "a list of JSON objects was wanted"),
        ("a.json", "[1]", "a JSON object was wanted, not int"),
        ("a.csv", "a,b\n1\n", "row 1: has more or fewer cells"),
        ("a.csv", "a,b\n1,2,3\n", "row 1: has more or fewer cells"),
        ("a.csv", 'a,b\n"1,2\n', "not CSV"),
        ("a.csv", "a,a\n1,2\n", "two columns have one name"),
        ("a.parquet", "no", "not Parquet"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_file(tmp_path / name)


def test_rows_come_from_the_hub_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stands in for a data set on the hub: `datasets` reads both by the same call."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert read_hub(str(tmp_path / "set"), None, None, "train", "quiz") == ROWS
    with pytest.raises(DataError, match="the hub did not give data set .*, split 'dev'.* give --data-dir DIR"):
        read_hub(str(tmp_path / "set"), None, None, "dev", "quiz")


def test_every_hub_data_set_is_pinned_to_a_revision() -> None:
    assert len(builtin_definitions()) == 15
    for definition in builtin_definitions().values():
        assert definition.hub is not None
        assert len(definition.hub.revision or "") == 40, definition.task
