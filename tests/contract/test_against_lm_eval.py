"""lm-evaluation-harness as a witness: its tasks, run here, against the same tasks run by itself on the same model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'softbench[lm-eval]'")

import lm_eval.tasks
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

from softbench.errors import SpecError, TaskError
from softbench.models import load_model
from softbench.pipeline import run
from softbench.report.progress import LineProgress
from softbench.results import JobResult
from softbench.spec import read_spec
from softbench.tasks import formulations, get_task, load_data, task_names

TASKS = Path(lm_eval.tasks.__file__).parent
OWN = {
    "arc_easy": "arc/arc_easy.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml",
    "gsm8k": "gsm8k/gsm8k.yaml",
    "boolq": "super_glue/boolq/default.yaml",
}
LIMIT, SHOTS, SEED = 12, 2, 1234


def write_task(name: str, data_dir: Path, folder: Path, more: str = "") -> Path:
    """The harness's own YAML for `name`, over the first rows of the local data in place of the hub's."""
    files = {}
    for split in ("train", "validation", "test"):
        source = data_dir / name / f"{split}.jsonl"
        # BoolQ has no validation split here and no test split there: the harness scores on validation.
        if name == "boolq" and split == "validation":
            source = data_dir / name / "test.jsonl"
        if not source.exists():
            continue
        rows = [json.loads(line) for line in source.read_text(encoding="utf-8").split("\n")[:40]]
        if name == "boolq":
            rows = [{**row, "label": int(row["answer"])} for row in rows]
        target = folder / f"{name}_{split}.jsonl"
        target.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[split] = str(target)
    path = folder / f"{name}.yaml"
    limits = 'generation_kwargs: {until: ["Question:", "</s>", "\\n\\n"], do_sample: false, max_gen_toks: 24}\n'
    path.write_text(
        f"include: {TASKS / OWN[name]}\ntask: {name}_here\ndataset_path: json\ndataset_name: null\n"
        f"dataset_kwargs: {{data_files: {json.dumps(files)}}}\n" + (limits if name == "gsm8k" else "") + more
    )
    return path


@pytest.fixture(scope="module")
def long_llama(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Llama with a context that worked examples fit into."""
    folder = tmp_path_factory.mktemp("long") / "llama"
    shutil.copytree(tiny_folder("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def by_the_harness(path: Path, model: Path, num_fewshot: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Samples in order and metrics, as the harness makes them."""
    loaded = load_model(str(model), "float32", "cpu")
    peer = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=4, add_bos_token=True)
    manager = lm_eval.tasks.TaskManager(include_path=str(path.parent), include_defaults=False)
    out = simple_evaluate(
        peer, tasks=[f"{path.stem}_here"], num_fewshot=num_fewshot, limit=LIMIT, task_manager=manager,
        fewshot_random_seed=SEED, bootstrap_iters=0,
    )  # fmt: skip
    name = f"{path.stem}_here"
    samples = sorted(out["samples"][name], key=lambda one: (one["filter"], one["doc_id"]))
    return samples, out["results"][name]


def by_softbench(path: Path, model: Path, num_fewshot: int, out: Path) -> JobResult:
    method = {"kind": "few_shot", "num_fewshot": num_fewshot} if num_fewshot else "zero_shot"
    settings = {"models": [str(model)], "tasks": [str(path)], "methods": [method], "seeds": [SEED], "limit": LIMIT}
    spec = read_spec(None, {**settings, "dtype": "float32", "device": "cpu", "output_path": out})
    [results] = run(spec, LineProgress(Console(quiet=True)))
    [job] = results.jobs
    return job


@pytest.mark.parametrize("num_fewshot", [0, SHOTS])
@pytest.mark.parametrize("name", ["arc_easy", "openbookqa", "boolq"])
def test_multiple_choice_has_the_same_prompts_log_likelihoods_and_metrics(
    name: str, num_fewshot: int, long_llama: Path, data_dir: Path, tmp_path: Path
) -> None:
    path = write_task(name, data_dir, tmp_path)
    theirs, metrics = by_the_harness(path, long_llama, num_fewshot)
    ours = by_softbench(path, long_llama, num_fewshot, tmp_path / "out")
    assert len(theirs) == len(ours.records) == LIMIT
    for sample, record in zip(theirs, ours.records, strict=True):
        arguments = [list(one.values()) for one in sample["arguments"].values()] if isinstance(
            sample["arguments"], dict
        ) else [list(one) for one in sample["arguments"]]  # fmt: skip
        assert [[record.prompt.text, one] for one in record.prompt.continuations] == arguments
        logprobs = [float(one[0][0]) for one in sample["resps"]]
        assert [one.logprob for one in record.choice_scores] == pytest.approx(logprobs, abs=1e-4)
    assert ours.metrics["choice_accuracy_raw"].value == metrics["acc,none"]
    if "acc_norm,none" in metrics:
        assert ours.metrics["choice_accuracy_per_char"].value == metrics["acc_norm,none"]


@pytest.mark.parametrize("num_fewshot", [0, SHOTS])
def test_generation_has_the_same_prompts_completions_and_metrics(
    num_fewshot: int, long_llama: Path, data_dir: Path, tmp_path: Path
) -> None:
    path = write_task("gsm8k", data_dir, tmp_path)
    theirs, metrics = by_the_harness(path, long_llama, num_fewshot)
    ours = by_softbench(path, long_llama, num_fewshot, tmp_path / "out")
    flexible, strict = theirs[:LIMIT], theirs[LIMIT:]
    assert {one["filter"] for one in flexible} == {"flexible-extract"}
    for loose, tight, record in zip(flexible, strict, ours.records, strict=True):
        arguments = loose["arguments"]
        first = next(iter(arguments.values())) if isinstance(arguments, dict) else arguments[0]
        assert record.prompt.text == (first["arg_0"] if isinstance(first, dict) else first[0])
        assert record.completion is not None
        assert record.completion.text == loose["resps"][0][0]
        assert (record.lenient_answer or "[invalid]") == loose["filtered_resps"][0]
        assert (record.answer or "[invalid]") == tight["filtered_resps"][0]
    assert ours.metrics["accuracy"].value == metrics["exact_match,strict-match"]
    assert ours.metrics["lenient_accuracy"].value == metrics["exact_match,flexible-extract"]


@pytest.mark.parametrize(
    ("said", "strict", "lenient"),
    [
        ("2 + 2 = 4\n#### 4", True, True),
        ("It is $4.", False, True),
        ("#### 4,", True, True),
        ("#### 5", False, False),
        ("none", False, False),
    ],
)
def test_answers_are_judged_as_the_harness_judges_them(
    said: str, strict: bool, lenient: bool, data_dir: Path, tmp_path: Path
) -> None:
    task = get_task(str(write_task("gsm8k", data_dir, tmp_path)))
    form, gold = task.answer_format, ("Two and two.\n#### 4",)
    assert form.is_right(form.parse(said), gold) is strict
    assert form.is_right(form.find(said), gold) is lenient
    assert task.stop == ("Question:", "</s>", "\n\n")
    assert task.max_new_tokens == 24


def test_a_folder_may_hold_tasks_of_both_schemas(data_dir: Path, tmp_path: Path) -> None:
    path = write_task("arc_easy", data_dir, tmp_path)
    (tmp_path / "mine.yaml").write_text("task: mine\ndata: a.csv\nquestion: '{{ q }}'\nanswers: a\n")
    assert task_names(tmp_path, own_only=True) == ["mine"]
    assert formulations(str(path)) == ("cf",)
    data = load_data(get_task(str(path)), None)
    assert (len(data.tune), len(data.validation), len(data.test)) == (40, 40, 40)


def test_formulation_and_format_are_the_harnesss(data_dir: Path, tmp_path: Path) -> None:
    path = write_task("arc_easy", data_dir, tmp_path)
    for arguments in ((f"{path}:mcf",), (str(path), None, "json")):
        with pytest.raises(TaskError, match="is put as lm-evaluation-harness puts it; drop formulation"):
            get_task(*arguments)
    assert get_task(f"{path}:cf").name == "lm_eval/arc_easy_here"


def test_what_is_not_supported_is_said(data_dir: Path, tmp_path: Path) -> None:
    for name, more, message in (
        ("arc_easy", "output_type: loglikelihood\n", "is of kind 'loglikelihood'; supported are multiple_choice and"),
        ("gsm8k", "repeats: 4\n", "samples its completions; softbench decodes greedily"),
        ("gsm8k", "metric_list: [{metric: bleu}]\n", "is scored by bleu; of generate_until tasks exact_match"),
        ("arc_easy", "dataset_path: no/such\n", "lm-evaluation-harness fails on it: "),
    ):
        path = write_task(name, data_dir, tmp_path, more)
        text = path.read_text()
        # The last of two equal keys would be refused: the later line replaces the earlier.
        key = more.partition(":")[0]
        lines = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
        path.write_text("\n".join([*lines, more]))
        with pytest.raises(TaskError, match=message):
            get_task(str(path))
    with pytest.raises(TaskError, match="task file 'nowhere/x.yaml' can't be read"):
        get_task("nowhere/x.yaml")
    path = write_task("arc_easy", data_dir, tmp_path)
    spec = read_spec(
        None,
        {"models": ["fake"], "engine": "fake", "tasks": [str(path)], "apply_chat_template": True,
         "output_path": tmp_path / "out"},
    )  # fmt: skip
    with pytest.raises(SpecError, match="writes its own prompts; drop --apply-chat-template"):
        run(spec, LineProgress(Console(quiet=True)))
