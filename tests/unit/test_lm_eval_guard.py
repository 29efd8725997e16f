"""Task files in the harness's schema that somebody else wrote: what they may not do."""

import json
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'softbench[lm-eval]'")

import datasets.config

import softbench.patterns
from softbench.errors import TaskError
from softbench.tasks import get_task, load_data
from softbench.tasks.lm_eval_guard import TRUST, _apply_template

TASK = """task: theirs
dataset_path: json
dataset_kwargs: {{data_files: {{train: {folder}/train.jsonl, test: {folder}/test.jsonl}}}}
training_split: train
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{q}}}}"
doc_to_target: "{{{{a}}}}"
metric_list: [{{metric: exact_match}}]
filter_list: [{{name: first, filter: [{{function: regex, regex_pattern: '(.+)'}}, {{function: take_first}}]}}]
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task file with its data, which would leave a mark if its Python were run."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.delenv(TRUST, raising=False)
    folder = tmp_path / "theirs"
    folder.mkdir()
    for split, first in (("train", 0), ("test", 10)):
        rows = [{"q": f"{first + n}?", "a": "a" * 40 + str(first + n)} for n in range(10)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "code.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef text(doc): return 'asked ' + doc['q']\n"
    )
    (folder / "task.yaml").write_text(TASK.format(folder=folder))
    return folder / "task.yaml"


def change(task: Path, key: str, value: str) -> str:
    """The task's name with another value of a key."""
    lines = [line for line in task.read_text().splitlines() if not line.startswith(f"{key}:")]
    task.write_text("\n".join([*lines, f"{key}: {value}\n"]))
    return str(task)


def test_a_task_without_code_is_loaded(task: Path) -> None:
    data = load_data(get_task(str(task)), None)
    assert data.test[0].fields == {"text": "Question: 10?"}


def test_a_function_that_a_file_names_runs_only_where_its_user_says_so(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = change(task, "doc_to_text", "!function code.text")
    with pytest.raises(
        TaskError, match=r"names Python code \(!function code.text\), which would run; look at that code"
    ):
        get_task(name)
    assert not (task.parent / "ran").exists()
    monkeypatch.setenv(TRUST, "1")
    assert load_data(get_task(name), None).test[0].fields == {"text": "asked 10?"}
    assert (task.parent / "ran").exists()


def test_a_function_in_an_included_file_does_not_run_either(task: Path) -> None:
    (task.parent / "base.yaml").write_text("doc_to_text: !function code.text\n")
    with pytest.raises(TaskError, match="base.yaml' can't be read: it names Python code"):
        get_task(change(task, "include", "base.yaml"))
    with pytest.raises(TaskError, match="names Python code"):
        get_task("lm_eval/theirs", include_path=task.parent)
    assert not (task.parent / "ran").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("class", "code.text", "is a Python class; look at it, and if you trust it, set SOFTBENCH_TRUST_TASKS=1"),
        ("metric_list", "[{metric: code}]", "is scored by 'code', which is no metric of the harness's own"),
        ("metric_list", "[{metric: exact_match, hf_evaluate: true}]", "but a program"),
        ("metric_list", "[{metric: [1]}]", "is scored by [1], which"),
        ("dataset_path", "..", "reads '..', which does not lie in its own folder"),
        ("dataset_kwargs", "{data_files: {test: /etc/passwd}}", "reads '/etc/passwd', which does not lie"),
        ("dataset_kwargs", "{data_files: [[file:///etc/passwd]]}", "reads 'file:///etc/passwd', which does not lie"),
        ("dataset_kwargs", "{data_files: 'zip://a::https://b'}", "reads 'zip://a::https://b', which does not lie"),
        ("dataset_kwargs", "{data_dir: ../..}", "reads '../..', which does not lie"),
        ("dataset_kwargs", "{trust_remote_code: true}", "wants code of its data set to be run"),
        ("task", "[{task: a}, {task: b}]", "is a group, or names no task; give a file of one task"),
        ("task_list", "[{task: a}]", "is a group, or names no task"),
        ("include", "task.yaml", "includes itself; take that out"),
        ("include", "nowhere.yaml", "can't be read: [Errno 2]"),
        ("include", "[1, code.py]", "code.py' can't be read"),
        ("a", "&a [*a]", "names for parts (*name) are not read"),
        ("doc_to_text", "\"{{ q.__class__ }}\"", "access to attribute '__class__' of 'str' object is unsafe"),
        ("doc_to_text", "\"{{ 'a' * 99999999999 }}\"", "it does more than 10,000,000 characters' worth of work"),
        ("doc_to_text", "\"{{ nothing.there }}\"", "'nothing' is undefined"),
        ("doc_to_text", "\"{{ q | regex_replace('(a', '') }}\"", "lm-evaluation-harness fails on it: missing )"),
    ],
)  # fmt: skip
def test_what_a_task_may_not_do_is_said(key: str, value: str, message: str, task: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load_data(get_task(change(task, key, value)), None)
    assert message in str(caught.value)


def test_a_file_that_a_link_leads_to_is_not_read(task: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"q": "secret", "a": "b"}\n')
    (task.parent / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(TaskError, match="link.jsonl', which does not lie in its own folder"):
        get_task(change(task, "dataset_kwargs", f"{{data_files: {{test: {task.parent}/link.jsonl}}}}"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (
            "filter_list",
            "[{name: a, filter: [{function: regex, regex_pattern: '(a|aa)+$'}, {function: take_first}]}]",
        ),
        ("metric_list", "[{metric: exact_match, regexes_to_ignore: ['(a|aa)+$']}]"),
        ("doc_to_text", "\"{{ a | regex_replace('(a|aa)+$', '') }}\""),
    ],
)
def test_patterns_end_by_the_time_limit(key: str, value: str, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softbench.patterns, "SECONDS", 0.05)
    with pytest.raises(TaskError, match=r"takes longer than 0.05 s on a text"):
        load_data(get_task(change(task, key, value)), None)


def test_templates_are_rendered_as_the_harness_renders_them() -> None:
    from lm_eval.utils import apply_template

    doc = {"q": "What is 2 + 2?", "choices": ["three", "four"]}
    for template in (
        "Question: {{q}}\n",
        "{% for one in choices %}{{ loop.index }}. {{ one }}\n{% endfor %}",
        "{{ q | regex_replace('[0-9]', 'n', 1) }}",
        "{% set more = [] %}{% set _ = more.append(q) %}{{ more | tojson }}",
        "{{ choices.index('four') }}",
    ):
        assert _apply_template(template, doc) == apply_template(template, doc)
