"""softbench as a model of lm-evaluation-harness: its tasks, run by its own code, with and without a soft prompt."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'softbench[lm-eval]'")

import lm_eval.tasks
import lm_eval.utils
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from softbench.cli import app
from softbench.engines.transformers import TransformersEngine
from softbench.errors import ModelError, PromptTooLong, SpecError
from softbench.lm_eval_model import SoftbenchLM
from softbench.methods import save_soft_prompt
from softbench.models import load_model
from softbench.types import Prompt, SoftPrompt

ROWS = [
    {"question": f"What is {one} and {other}?", "choices": ["two", "three", "four"], "gold": (one + other) % 3}
    for one in range(4)
    for other in range(3)
]
CHOICES = """
task: sums_choices
dataset_path: json
dataset_kwargs: {data_files: {train: FILE, test: FILE}}
output_type: multiple_choice
training_split: train
test_split: test
doc_to_text: "Question: {{question}} Answer:"
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
ANSWERS = """
task: sums_answers
dataset_path: json
dataset_kwargs: {data_files: {train: FILE, test: FILE}}
output_type: generate_until
training_split: train
test_split: test
doc_to_text: "Question: {{question}} Answer:"
doc_to_target: "{{choices[gold]}}"
generation_kwargs: {until: ["e"], max_gen_toks: 6, do_sample: false, temperature: 0.0}
metric_list: [{metric: exact_match}]
"""
TEXTS = """
task: sums_texts
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}]
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three tasks of the harness's over a file of rows."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name, text in (("choices", CHOICES), ("answers", ANSWERS), ("texts", TEXTS)):
        (folder / f"{name}.yaml").write_text(text.replace("FILE", str(tmp_path / "rows.jsonl")))
    return folder


@pytest.fixture
def prompt_folder(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    model = load_model(str(tiny_folder("llama")), "float32", "cpu")
    vectors = np.random.default_rng(0).normal(size=(5, 32)).astype(np.float32)
    save_soft_prompt(tmp_path / "prompt", SoftPrompt(vectors, {}), model.info, {"task": "sums", "seed": 3})
    return tmp_path / "prompt"


def request(kind: Any, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0, metadata=("here", 7, 1))


def evaluate(model: Any, tasks: Path, num_fewshot: int = 2, **arguments: Any) -> Any:
    names = [f"sums_{path.stem}" for path in sorted(tasks.glob("*.yaml"))]
    shots = {} if "sums_texts" in names and num_fewshot else {"num_fewshot": num_fewshot}
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return simple_evaluate(model, tasks=names, task_manager=manager, bootstrap_iters=0, **shots, **arguments)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_without_a_soft_prompt_it_is_the_harness_s_own_model(
    architecture: str, tiny_folder: Callable[[str], Path], tasks: Path
) -> None:
    folder = str(tiny_folder(architecture))
    loaded = load_model(folder, "float32", "cpu")
    adds_bos = loaded.bos_id is not None
    theirs = evaluate(
        HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=4, add_bos_token=adds_bos), tasks
    )
    ours = evaluate("softbench", tasks, model_args=f"pretrained={folder},dtype=float32,device=cpu")
    assert set(ours["results"]) == {"sums_choices", "sums_answers", "sums_texts"}
    for task, samples in theirs["samples"].items():
        for other, one in zip(samples, ours["samples"][task], strict=True):
            assert one["arguments"] == other["arguments"]
            if task == "sums_choices":
                logprobs = [response[0][0] for response in other["resps"]]
                assert [response[0][0] for response in one["resps"]] == pytest.approx(logprobs, abs=1e-4)
                assert [response[0][1] for response in one["resps"]] == [response[0][1] for response in other["resps"]]
            elif task == "sums_answers":
                assert one["resps"] == other["resps"]
    for task, metrics in theirs["results"].items():
        for name, value in metrics.items():
            # Whole texts: see the next test.
            if isinstance(value, float) and task != "sums_texts":
                assert ours["results"][task][name] == pytest.approx(value, rel=1e-5)
    assert ours["config"]["model"] == "softbench"
    assert ours["config"]["model_sha"] == loaded.info.fingerprint
    assert ours["config"]["soft_prompt"] is None


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_whole_texts_are_scored_behind_one_bos(architecture: str, tiny_folder: Callable[[str], Path]) -> None:
    loaded = load_model(str(tiny_folder(architecture)), "float32", "cpu")
    # With add_bos_token the harness writes BOS twice here, and scores the second as a token of the text.
    theirs: Any = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=4, add_bos_token=False)
    requests = [request("loglikelihood_rolling", row["question"]) for row in ROWS]
    ours = SoftbenchLM(str(tiny_folder(architecture)), dtype="float32", device="cpu")
    assert ours.loglikelihood_rolling(requests) == pytest.approx(theirs.loglikelihood_rolling(requests), abs=1e-4)


def test_with_a_soft_prompt_every_request_stands_behind_it(
    tiny_folder: Callable[[str], Path], tasks: Path, prompt_folder: Path
) -> None:
    folder = str(tiny_folder("llama"))
    arguments = {"pretrained": folder, "dtype": "float32", "device": "cpu", "soft_prompt": str(prompt_folder)}
    found = evaluate("softbench", tasks, model_args=arguments)
    model = load_model(folder, "float32", "cpu")
    engine = TransformersEngine(model, 1)
    vectors = np.random.default_rng(0).normal(size=(5, 32)).astype(np.float32)
    for sample in found["samples"]["sums_choices"]:
        for (context, continuation), response in zip(sample["arguments"], sample["resps"], strict=True):
            [scores] = engine.score_choices([Prompt("", context, "", (continuation,))], SoftPrompt(vectors, {}))
            assert response[0][0] == pytest.approx(scores.options[0].logprob, abs=1e-4)
    assert found["config"]["soft_prompt"]["num_virtual_tokens"] == 5
    assert found["config"]["soft_prompt"]["task"] == "sums"


def test_a_cache_of_responses_belongs_to_one_prompt(
    tiny_folder: Callable[[str], Path], tasks: Path, prompt_folder: Path, tmp_path: Path
) -> None:
    (tasks / "texts.yaml").unlink()
    arguments = {"pretrained": str(tiny_folder("llama")), "dtype": "float32", "device": "cpu"}
    cache = str(tmp_path / "responses")
    first = evaluate("softbench", tasks, model_args=arguments, use_cache=cache)
    again = evaluate("softbench", tasks, model_args=arguments, use_cache=cache)
    assert again["results"] == first["results"]
    with pytest.raises(SpecError, match="holds answers of another model or soft prompt; give another one"):
        evaluate("softbench", tasks, model_args={**arguments, "soft_prompt": str(prompt_folder)}, use_cache=cache)


def test_the_command_takes_the_harness_s_flags_and_writes_its_files(
    tiny_folder: Callable[[str], Path],
    tasks: Path,
    prompt_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its index of some ten thousand tasks takes a minute to read.
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", functools.partial(TaskManager, include_defaults=False))
    model = f"pretrained={tiny_folder('llama')},soft_prompt={prompt_folder},dtype=float32"
    command = ["lm-eval", "--model_args", model, "--tasks", "sums_choices", "--include_path", str(tasks)]
    command += ["--device", "cpu", "--limit", "3", "--output_path", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "out").rglob("results_*.json")
    content = json.loads(path.read_text())
    assert content["n-samples"]["sums_choices"]["effective"] == 3
    assert content["config"]["soft_prompt"]["num_virtual_tokens"] == 5


def test_another_model_is_not_taken() -> None:
    result = CliRunner().invoke(app, ["lm-eval", "--model", "hf", "--tasks", "arc_easy"])
    assert isinstance(result.exception, SpecError)
    assert "brings its own model" in str(result.exception)


def test_what_can_t_be_done_is_refused_by_name(tiny_folder: Callable[[str], Path]) -> None:
    folder = str(tiny_folder("llama"))
    with pytest.raises(SpecError, match="model argument 'parallelize' is unknown to softbench"):
        SoftbenchLM(folder, parallelize=True)
    with pytest.raises(SpecError, match="batch_size can't be 'many'"):
        SoftbenchLM(folder, batch_size="many")
    model = SoftbenchLM(folder, dtype="float32", device="cpu", batch_size="auto")
    with pytest.raises(SpecError, match="do_sample=True is asked for, and softbench decodes greedily alone"):
        model.generate_until([request("generate_until", "a", {"until": ["b"], "do_sample": True})])
    with pytest.raises(SpecError, match="generation setting 'logit_bias' is unknown"):
        model.generate_until([request("generate_until", "a", {"until": "b", "logit_bias": 1})])
    with pytest.raises(PromptTooLong, match="sample 'here:7' needs"):
        model.loglikelihood_rolling([request("loglikelihood_rolling", "question " * 600)])
    with pytest.raises(ModelError, match="has no chat template"):
        model.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert model.chat_template() == ""
    with pytest.raises(SpecError, match="takes no name"):
        model.chat_template("rag")


def test_conversations_are_written_by_the_model_s_template(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = load_model(str(tiny_folder("llama")), "float32", "cpu")
    model.model.save_pretrained(tmp_path)
    model.tokenizer.chat_template = (
        "{{ bos_token }}{% for one in messages %}[{{ one.role }}]{{ one.content }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    try:
        model.tokenizer.save_pretrained(tmp_path)
    finally:
        model.tokenizer.chat_template = None
    chat = SoftbenchLM(str(tmp_path), dtype="float32", device="cpu")
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer is"}]
    assert chat.apply_chat_template(turns[:1]) == "[user]Hi;[assistant]"
    assert chat.apply_chat_template(turns, add_generation_prompt=False) == "[user]Hi;[assistant]The answer is"
    assert "[{{ one.role }}]" in str(chat.chat_template(True))


def test_the_harness_s_own_readers_open_a_run_of_softbench(tmp_path: Path) -> None:
    command = ["run", "--engine", "fake", "--model", "m", "--tasks", "capitals,elements", "--limit", "4"]
    result = CliRunner().invoke(app, [*command, "--output-path", str(tmp_path)])
    assert result.exit_code == 0, result.output
    names = [str(path) for path in sorted((tmp_path / "m").glob("*.json*"))]
    [path] = lm_eval.utils.get_results_filenames(names)
    samples = lm_eval.utils.get_sample_results_filenames(names)
    assert [lm_eval.utils.get_file_task_name(Path(name).name) for name in samples] == ["capitals", "elements"]
    assert lm_eval.utils.get_latest_filename(samples) in samples
    table = lm_eval.utils.make_table(json.loads(Path(path).read_text()))
    rows = [line for line in table.splitlines() if "soft_prompt" in line and "format_following" in line]
    assert len(rows) == 2
