"""Estimates of a run: figures worked by hand, and against what a real run of a tiny model counts."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from softbench.errors import ModelError, SpecError
from softbench.estimate import estimate
from softbench.estimate.counting import CountingEngine, CountingTuner, Reader, by_characters
from softbench.estimate.data import LOOKED_AT, look_at, spread
from softbench.estimate.forecast import ITEM_SIZES, Amount, Asked, Counted, Tuned, amount_of
from softbench.estimate.sizes import ModelSize, assumed_size, parameters_in
from softbench.estimate.tables import short
from softbench.models import LoadedModel, outline_model
from softbench.pipeline import plan, run
from softbench.results import JobResult
from softbench.spec import Spec, read_spec
from softbench.tasks import formulations, get_task, load_data, render_prompt
from softbench.tasks.definition import builtin_definitions
from softbench.types import SILENT, ModelInfo, Prompt, Sample, SoftPrompt, TuneRequest, TuneSettings

ROOT = Path(__file__).resolve().parents[2]
INFO = ModelInfo("m", "m", "m", None, "float32", "cpu", 1, 1, 1, 1, 1 << 30)
READER = Reader("characters", by_characters, 1, None, exact=False)


# --- by hand ----------------------------------------------------------------------------------------------------------


def prompts() -> list[Prompt]:
    """Two of 48 characters, 12 tokens of 4, which begin with the same 40."""
    return [Prompt(name, "q" * 40 + name * 8, " yes", (" yes", " no!"), 40) for name in "ab"]


def test_what_prompts_share_is_read_once_and_completions_count_in_full() -> None:
    engine = CountingEngine(READER, INFO, weight=10.0)
    engine.generate(prompts(), None, 16, ())
    assert engine.prompt_tokens == 10 * 2 * 12
    # 10 shared tokens less the 2 that may merge with what follows, once, with BOS; then 4 of each prompt's own.
    assert engine.read == 1 + 8 + 10 * 2 * 4
    assert engine.written == engine.looked_at == 10 * 2 * 16
    assert engine.longest == 1 + 12 + 16


def test_options_are_branches_whose_last_tokens_nobody_reads() -> None:
    engine = CountingEngine(READER, INFO, weight=1.0)
    soft_prompt = SoftPrompt(np.zeros((10, 1), np.float32), {})
    engine.score_choices(prompts(), soft_prompt)
    # " yes" and " no!" are one token each: the trunk alone is read, 12 tokens of which 8 are shared.
    assert engine.read == 1 + 10 + 8 + 2 * 4
    assert engine.looked_at == 2 * 2
    assert engine.written == 0


def test_a_tuning_reads_prompts_targets_and_an_end_token_for_each_sample_of_each_step() -> None:
    tuner = CountingTuner(READER)
    [made] = tuner([TuneRequest(prompts(), "", TuneSettings(10, 3, 4, 0.1, 0, "text"), 0)], lambda loss: None)
    assert made.num_tokens == tuner.num_tokens == 3 * 4 * (12 + 1 + 1)
    assert tuner.learned == 3 * 4 * 2
    assert tuner.longest == 1 + 10 + 14


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("org/Model-7B", 7e9),
        ("org/Model2.5-1.5B-Instruct", 1.5e9),
        ("gemma-3-270m", 270e6),
        ("OLMo-2-1124-7B", 7e9),
        ("org-7B/base", None),
        ("Mixtral-8x7B", None),
        ("step1000", None),
    ],
)
def test_a_name_says_how_many_parameters_there_are_or_nothing(name: str, parameters: float | None) -> None:
    assert parameters_in(name) == parameters


def test_an_assumed_size_has_the_usual_shape() -> None:
    # Two layers of width 256, 12 x 256^2 parameters each; the vocabulary gets half, as 128,000 rows would be more.
    size = assumed_size(2 * 12 * 256**2, "its name")
    assert (size.num_layers, size.hidden_size, size.intermediate_size, size.kv_size) == (2, 256, 1024, 64)
    assert size.num_body_parameters == 12 * 256**2
    # Within some percent of a real one: Llama 3.1 8B has 8.03e9, 6.98e9 of them outside embeddings and head, 32 layers.
    large = assumed_size(8.03e9, "its name")
    assert large.num_body_parameters == pytest.approx(6.98e9, rel=0.09)
    assert large.num_layers == pytest.approx(32, abs=3)


def test_operations_and_disk_by_hand() -> None:
    spec = read_spec(None, {"models": ["m"], "tasks": ["capitals"], "methods": [{"kind": "soft_prompt"}]})
    task = get_task("capitals")
    [job] = plan(spec, [(task, load_data(task, None))])
    # 1000 parameters in layers, a head of 10 x 20: 200.
    size = ModelSize(1400, 1000, 2, 10, 40, 5, 20, None, "here")
    asked = Asked(prompt_tokens=60, read_tokens=50, written_tokens=6, looked_at=6, record_bytes=100, longest=30)
    amount = amount_of(Counted(job, 3, asked, Tuned(num_tokens=70, learned=7, longest=20)), size)
    assert amount.body_flops == 2 * 1000 * (50 + 6) + 4 * 1000 * 70
    assert amount.head_flops == 2 * 200 * 6 + 4 * 200 * 7
    assert amount.disk == 2 * 100 + 10 * 10 * 4  # records twice; ten vectors of ten numbers of four bytes
    untuned = amount_of(Counted(job, 3, asked, None), size)
    assert (untuned.flops, untuned.tuning_tokens, untuned.disk) == (2 * 1000 * 56 + 2 * 200 * 6, 0, 2 * 100)


def test_numbers_are_short() -> None:
    cases = {
        0: "0",
        7: "7",
        999: "999",
        1000: "1.00k",
        12_345: "12.3k",
        0.000416: "0.00042",
        999_700: "1.00M",
        7.62e9: "7.62G",
    }
    assert {value: short(value) for value in cases} == cases


def test_amounts_add_up() -> None:
    total = Amount(jobs=1, body_flops=2.0) + Amount(jobs=2, head_flops=3.0)
    assert (total.jobs, total.flops) == (3, 5.0)


def test_samples_that_stand_for_all_are_of_all_lengths() -> None:
    samples = [Sample(str(place), {"q": "x" * (place * 37 % 1000)}, ("a",)) for place in range(1000)]
    few = spread(samples)
    assert len(few) == LOOKED_AT
    assert [one.id for one in few] == sorted((one.id for one in few), key=int)
    assert fmean(len(one.fields["q"]) for one in few) == pytest.approx(499.5, abs=1)
    assert spread(samples[:LOOKED_AT]) == samples[:LOOKED_AT]


# --- against a real run -----------------------------------------------------------------------------------------------


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    """A task of 80 questions, 32 of which are tuned on and 40 tested."""
    rows = [
        {"q": f"Which is the number {n}{' of them all' * (n % 3)}?", "o": [f"it is {n}", f"or {n + 1}"], "g": n % 2}
        for n in range(80)
    ]
    (tmp_path / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "quiz.yaml"
    path.write_text(
        "task: quiz\ndata: quiz.jsonl\nquestion: 'Question: {{ q }}'\noptions: o\ngold: g\nmax_new_tokens: 6\n"
    )
    return path


def spec_of(model: Path, task: str, out: Path, **changes: Any) -> Spec:
    base = {"models": [str(model)], "tasks": [task], "output_path": out, "dtype": "float32", "device": "cpu"}
    return read_spec(None, base | {"steps": 4, "batch_size": 8} | changes)


SHOWN = {"kind": "few_shot", "num_fewshot": 2}
METHODS = ["zero_shot", SHOWN, "soft_prompt", {"kind": "soft_prompt", "labels": "shuffled"}, "majority", "lora"]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("formulation", ["mcf", "generation", "cf"])
def test_an_estimate_counts_what_a_run_counts(
    formulation: str, architecture: str, quiz: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    methods = ["zero_shot", SHOWN, "soft_prompt"] if formulation == "cf" else METHODS
    spec = spec_of(tiny_folder(architecture), f"{quiz}:{formulation}", tmp_path / "out", methods=methods)
    found = estimate(spec, SILENT)
    [results] = run(spec, SILENT)
    [amount] = found.models[0].tasks.values()
    size = found.models[0].size
    assert (size.num_parameters, size.num_body_parameters) == (
        results.info.num_parameters,
        results.info.num_body_parameters,
    )
    assert amount.jobs == len(results.jobs)
    # 4 steps of 8 are the tuning split once.
    assert amount.tuning_tokens == sum(job.cost.get("tuning_tokens", 0) for job in results.jobs)
    if formulation != "cf":
        assert amount.prompt_tokens == sum(prompt_tokens(job) for job in results.jobs)
    counted = sum(job.cost["evaluation_tokens"] for job in results.jobs)
    # A completion's last token is not read; others may end before the limit. Chunks of 64 read prefixes once.
    assert amount.read_tokens <= counted <= amount.read_tokens + amount.written_tokens
    if formulation == "cf":
        assert counted == amount.read_tokens
        assert amount.written_tokens == 0
        flops = sum(job.cost["evaluation_flops"] + job.cost.get("tuning_flops", 0) for job in results.jobs)
        assert amount.body_flops == flops
    files = [*tmp_path.rglob("records.jsonl"), *tmp_path.rglob("samples_*.jsonl"), *tmp_path.rglob("*.safetensors")]
    assert amount.disk == pytest.approx(sum(path.stat().st_size for path in files), rel=0.15)


def prompt_tokens(job: JobResult) -> int:
    return sum(record.completion.num_prompt_tokens for record in job.records if record.completion is not None)


def test_what_is_counted_on_some_samples_is_near_what_all_would_give(
    tiny_folder: Callable[[str], Path], tmp_path: Path, data_dir: Path
) -> None:
    spec = spec_of(tiny_folder("llama"), "openbookqa:mcf", tmp_path, data_dir=data_dir, methods=["zero_shot", "lora"])
    found = estimate(spec, SILENT)
    assert found.sampled_tasks == ("openbookqa:mcf",)
    task = get_task("openbookqa:mcf")
    data, tokenizer = load_data(task, data_dir), _tokenizer(tiny_folder("llama"))

    def tokens(samples: Sequence[Sample], target: bool) -> int:
        prompts = [render_prompt(task, sample) for sample in samples]
        texts = [prompt.text + prompt.target * target for prompt in prompts]
        return sum(map(len, tokenizer(texts, add_special_tokens=False).input_ids))

    assert found.total.prompt_tokens == pytest.approx(2 * tokens(data.test, False), rel=0.01)
    of_split = tokens(data.tune, True) / len(data.tune) + 1
    assert found.total.tuning_tokens == pytest.approx(4 * 8 * of_split, rel=0.01)


def _tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


def test_seeds_checkpoints_and_controls_are_counted_as_the_run_does_them(
    quiz: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    soft: dict[str, Any] = {"kind": "soft_prompt", "checkpoints": [0, 2]}
    one, three, given, shuffled = (
        estimate(spec_of(tiny_folder("llama"), str(quiz), tmp_path, methods=methods, seeds=seeds), SILENT).total
        for methods, seeds in (
            (["soft_prompt"], [0]),
            ([soft], [0, 1, 2]),
            ([soft, {**soft, "options": "shuffled"}], [0, 1, 2]),
            ([soft, {**soft, "labels": "shuffled"}], [0, 1, 2]),
        )
    )
    assert [amount.jobs for amount in (one, three, given, shuffled)] == [1, 9, 18, 18]
    assert three.tuning_tokens == 3 * one.tuning_tokens
    assert given.tuning_tokens == three.tuning_tokens  # the order of test options changes nothing that is tuned
    assert shuffled.tuning_tokens == 2 * three.tuning_tokens
    assert three.written_tokens == 9 * one.written_tokens


def test_an_outline_knows_what_the_model_knows(tiny_model: LoadedModel, tiny_folder: Callable[[str], Path]) -> None:
    outline = outline_model(str(tiny_folder(tiny_model.model.config.model_type.removesuffix("_text"))))
    assert outline is not None
    names = ("num_parameters", "num_body_parameters", "hidden_size", "vocab_size", "max_length")
    assert all(getattr(outline.info, name) == getattr(tiny_model.info, name) for name in names)
    assert (outline.bos_id, outline.eos_ids) == (tiny_model.bos_id, tiny_model.eos_ids)
    assert {parameter.device.type for parameter in outline.model.parameters()} == {"meta"}


def test_memory_by_hand(quiz: Path, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    spec = spec_of(tiny_folder("llama"), str(quiz), tmp_path, methods=["soft_prompt"], eval_batch_size=3)
    [model] = estimate(spec, SILENT).models
    size, item = model.size, ITEM_SIZES["float32"]
    assert (size.num_layers, size.kv_size, size.vocab_size, item) == (2, 16, 400, 4)
    assert model.memory.weights == 4 * size.num_parameters
    keys_and_values = 2 * 2 * 16 * 4 * 3 * model.longest
    assert model.memory.evaluation == pytest.approx(keys_and_values + 3 * 400 * (4 + 4), rel=0.1)
    assert model.memory.total == model.memory.weights + max(model.memory.evaluation, model.memory.tuning)


# --- what is not at hand ----------------------------------------------------------------------------------------------


def test_an_estimate_by_name_alone_loads_no_torch_and_fetches_nothing(tmp_path: Path) -> None:
    code = (
        "from softbench.spec import read_spec; from softbench.estimate import estimate; import sys\n"
        "from softbench.types import SILENT\n"
        "spec = read_spec(None, {'models': ['org/base-7B'], 'tasks': ['hellaswag', 'gsm8k'], 'data_dir': '.'})\n"
        "found = estimate(spec, SILENT)\n"
        "assert found.assumed_tasks == ('hellaswag:cf', 'gsm8k'), found.assumed_tasks\n"
        "heavy = {'torch', 'datasets'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=tmp_path)


def test_a_model_of_unknown_size_is_refused_and_the_spec_may_say_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give 'parameters' beside its 'source' in a spec file, such as 7.6e9"):
        estimate(read_spec(None, {"models": ["org/base"], "tasks": ["capitals"]}), SILENT)
    path = tmp_path / "spec.yaml"
    path.write_text("models: [{source: org/base, parameters: 7.6e9}]\ntasks: [capitals]\n")
    spec = read_spec(path, {})
    [model] = estimate(spec, SILENT).models
    assert model.size.num_parameters == 7_600_000_000
    assert "parameters" not in spec.model_dump_json()  # it changes no result
    with pytest.raises(SpecError, match="'models.0.parameters' can't be -1"):
        read_spec(None, {"models": [{"source": "a", "parameters": -1}], "tasks": ["capitals"]})


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="--tflops can't be 0.0; give what a GPU reaches"):
        estimate(read_spec(None, {"models": ["org/m-1B"], "tasks": ["capitals"]}), SILENT, 0.0)


def test_hours_follow_operations_and_the_rate() -> None:
    spec = read_spec(None, {"models": ["org/m-1B", "org/n-1B"], "tasks": ["capitals"]})
    slow, fast = estimate(spec, SILENT, 10.0), estimate(spec, SILENT, 40.0)
    assert slow.total.flops == 2 * slow.models[0].total.flops == fast.total.flops
    assert slow.hours(slow.total) == pytest.approx(slow.total.flops / 1e13 / 3600) == 4 * fast.hours(fast.total)


@pytest.mark.parametrize("name", sorted(builtin_definitions()))
def test_every_benchmark_can_be_estimated_without_its_data(name: str, tmp_path: Path) -> None:
    for formulation in formulations(name):
        spec = read_spec(None, {"models": ["m-1B"], "tasks": [f"{name}:{formulation}"], "data_dir": tmp_path})
        looked = look_at(spec.tasks[0], spec)
        assert looked.assumed
        assert looked.num_test >= 300
        assert len(looked.data.tune) > 32


@pytest.mark.parametrize(
    "name",
    ["arc_challenge", "arc_easy", "boolq", "commonsense_qa", "gsm8k", "mmlu", "openbookqa", "svamp", "trivia_qa"],
)
def test_made_up_samples_are_as_long_as_real_ones(name: str, tmp_path: Path, data_dir: Path) -> None:
    task = get_task(name)

    def lengths(folder: Path) -> tuple[float, float]:
        looked = look_at(name, read_spec(None, {"models": ["m-1B"], "tasks": [name], "data_dir": folder}))
        written = [render_prompt(task, sample) for sample in looked.data.tune]
        return fmean(len(prompt.text) for prompt in written), fmean(len(prompt.target) for prompt in written)

    (text, target), (real_text, real_target) = lengths(tmp_path), lengths(data_dir)
    assert text == pytest.approx(real_text, rel=0.05)
    assert target == pytest.approx(real_target, rel=0.1, abs=1)


# --- the grid of the paper --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["base", "post"])
def test_the_papers_grid_is_a_spec_whose_cost_is_known_without_any_download(kind: str, tmp_path: Path) -> None:
    spec = read_spec(ROOT / "studies" / f"paper_grid_{kind}.yaml", {"data_dir": tmp_path})
    found = estimate(spec, SILENT)
    assert (len(found.models), len(found.models[0].tasks), len(spec.seeds)) == (7, 7, 3)
    assert {"zero_shot", "few_shot", "soft_prompt"} <= {method.kind for method in spec.methods}
    assert 10 < found.hours(found.total) < 100
    assert max(model.memory.total for model in found.models) < 80e9  # one GPU of 80 GB
    assert spec.executor == "ray"
    forms = {get_task(name).answer_format.name for name in spec.tasks}
    assert len(forms) == 7


def test_the_grids_two_halves_are_pairs() -> None:
    base, post = (read_spec(ROOT / "studies" / f"paper_grid_{kind}.yaml", {}) for kind in ("base", "post"))
    stems = [re.sub(r"-Instruct|-v0\.3", "", model.label) for model in (*base.models, *post.models)]
    assert stems[:7] == stems[7:]
    assert (base.tasks, base.seeds, base.output_path) == (post.tasks, post.seeds, post.output_path)
    assert post.apply_chat_template
    assert not base.apply_chat_template
