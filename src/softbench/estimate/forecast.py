"""From a spec to what its run will take: the pipeline's plan, methods and prompts over an engine that counts."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from softbench.backends import Backend
from softbench.errors import SpecError
from softbench.estimate.counting import CountingEngine, CountingTuner, Reader
from softbench.estimate.data import Looked, look_at, spread
from softbench.estimate.sizes import ModelSize, describe
from softbench.pipeline import (
    Job,
    constant_asker,
    engine_asker,
    make_prompts,
    make_record,
    materials,
    plan,
    tuning_settings,
)
from softbench.records import record_to_line
from softbench.spec import Spec
from softbench.types import Adapter, ModelInfo, Prepared, Progress, SoftPrompt

TFLOPS = 100.0
"""Operations that a GPU is taken to reach, in 10^12 a second: a third of what an A100 multiplies in bfloat16."""
ITEM_SIZES = {"auto": 2, "bfloat16": 2, "float32": 4}
_LOADED_HEIGHT = 10
# What one pass may hold, as engines.transformers and methods.losses have it.
_MAX_LOGITS, _MAX_TUNED_TOKENS = 1 << 26, 8192
# Values that a layer keeps of a token for the way back, its weights being frozen: in hidden and in intermediate sizes.
_KEPT_HIDDEN, _KEPT_INTERMEDIATE = 8, 3


@dataclass(frozen=True, slots=True)
class Amount:
    """What jobs take, up to the longest completions.

    `prompt_tokens` are those of prompts, each by itself and whole; `read_tokens` those that pass through a model which
    reads what prompts share once; `written_tokens` those of completions; `tuning_tokens` as results count them.
    `flops` are the body's, as results count them, and the head's. `disk` is in bytes.
    """

    jobs: int = 0
    samples: int = 0
    prompt_tokens: float = 0.0
    read_tokens: float = 0.0
    written_tokens: float = 0.0
    tuning_tokens: float = 0.0
    body_flops: float = 0.0
    head_flops: float = 0.0
    disk: float = 0.0

    @property
    def flops(self) -> float:
        """All operations."""
        return self.body_flops + self.head_flops

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model's jobs hold, in bytes: weights all the time, and either of the other two."""

    weights: int
    evaluation: int
    tuning: int

    @property
    def total(self) -> int:
        """The most that is held at once."""
        return self.weights + max(self.evaluation, self.tuning)


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """What one model's jobs take, task by task; `longest` are the tokens of the longest row that was looked at."""

    name: str
    size: ModelSize
    exact_tokens: bool
    tasks: dict[str, Amount]
    memory: Memory
    longest: int

    @property
    def total(self) -> Amount:
        """Of all tasks."""
        return sum(self.tasks.values(), Amount())


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run takes. `assumed_tasks` are those whose data were not at hand; `tflops` is the rate behind hours."""

    models: tuple[ModelForecast, ...]
    tflops: float
    item_size: int
    assumed_tasks: tuple[str, ...]
    sampled_tasks: tuple[str, ...]

    @property
    def total(self) -> Amount:
        """Of all models."""
        return sum((model.total for model in self.models), Amount())

    def hours(self, amount: Amount) -> float:
        """Hours of one GPU at the rate."""
        return amount.flops / (self.tflops * 1e12) / 3600


def estimate(spec: Spec, progress: Progress, tflops: float = TFLOPS) -> Forecast:
    """Say what a run of `spec` takes, without weights and without fetching data.

    Raises SoftbenchError at whatever the run would refuse before it loads a model, and where a model's size is unknown.
    """
    if not tflops > 0:
        raise SpecError(
            f"--tflops can't be {tflops}; give what a GPU reaches in 10^12 operations a second, such as 100"
        )
    names = list(dict.fromkeys(spec.tasks))
    with progress.track("load tasks", len(names)) as advance:
        looked = []
        for name in names:
            looked.append(look_at(name, spec))
            advance(1, name)
    described = []
    with progress.track("read what is known of models", len(spec.models)) as advance:
        for model in spec.models:
            described.append(describe(model, spec.apply_chat_template))
            advance(1, model.label)
    counted: dict[tuple[str, str], list[Counted]] = {}
    with progress.track("count tokens", len(described) * len(looked)) as advance:
        for _, reader in described:
            for one in looked:
                # Models without a tokenizer at hand all count alike.
                key = (reader.name, one.task.name)
                if key not in counted:
                    counted[key] = count_task(one, spec, reader)
                advance(1, f"{one.task.name}, {reader.name}")
    item_size = ITEM_SIZES[spec.dtype]
    models = tuple(
        _of_model(
            model.label, size, reader, {one.task.name: counted[reader.name, one.task.name] for one in looked}, spec
        )
        for model, (size, reader) in zip(spec.models, described, strict=True)
    )
    return Forecast(
        models,
        tflops,
        item_size,
        tuple(one.task.name for one in looked if one.assumed),
        tuple(one.task.name for one in looked if not one.assumed and len(one.data.test) < one.num_test),
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """What an evaluation makes a model do, whatever its size; see CountingEngine."""

    prompt_tokens: float
    read_tokens: float
    written_tokens: float
    looked_at: float
    record_bytes: float
    longest: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a tuning makes a model do, whatever its size; see CountingTuner."""

    num_tokens: float
    learned: float
    longest: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What a job makes a model do; `tuned` is None where nothing is tuned, or was for an earlier job."""

    job: Job
    samples: int
    asked: Asked
    tuned: Tuned | None


def count_task(looked: Looked, spec: Spec, reader: Reader) -> list[Counted]:
    """Count all jobs of a task; jobs that count alike, such as checkpoints and seeds of a soft prompt, once."""
    asked: dict[str, Asked] = {}
    tuned: dict[str, tuple[Prepared, Tuned]] = {}
    charged: set[str] = set()
    found = []
    for job in plan(spec, [(looked.task, looked.data)]):
        tuning = repr((job.spec.kind, tuning_settings(job)))
        if not job.method.num_steps:
            prepared, own = _prepare(job, reader)[0], None
        else:
            if tuning not in tuned:
                # Samples that are tuned on are of the mean length; worked examples are drawn from all.
                few = replace(job.data, tune=tuple(spread(job.data.tune)))
                tuned[tuning] = _prepare(replace(job, data=few), reader)
            prepared, own = tuned[tuning]
            own = None if f"{tuning} {job.seed}" in charged else own
            charged.add(f"{tuning} {job.seed}")
        height = 0 if prepared.soft_prompt is None else len(prepared.soft_prompt.vectors)
        drawn = job.method.num_fewshot or job.method.options == "shuffled"
        shots = job.spec.model_dump() if job.method.num_fewshot else None
        alike = repr((shots, job.method.options, height, prepared.constant, job.seed if drawn else None))
        if alike not in asked:
            asked[alike] = _ask(job, prepared, looked, reader)
        found.append(Counted(job, looked.num_test, asked[alike], own))
    return found


def _prepare(job: Job, reader: Reader) -> tuple[Prepared, Tuned]:
    tuner = CountingTuner(reader)
    prepared = job.method.prepare(materials(job, _backend(CountingEngine(reader, _INFO, 1.0), tuner, reader), _ignore))
    return prepared, Tuned(tuner.num_tokens, tuner.learned, tuner.longest)


def _ignore(loss: float) -> None:
    """Nobody waits for a step."""


def _ask(job: Job, prepared: Prepared, looked: Looked, reader: Reader) -> Asked:
    weight = looked.num_test / max(1, len(job.test))
    engine = CountingEngine(reader, _INFO, weight)
    backend = _backend(engine, CountingTuner(reader), reader)
    prompts = make_prompts(job, backend, job.test, prepared, job.method.num_fewshot)
    places = range(len(prompts))
    if prepared.constant is None:
        answers = engine_asker(job, prepared, engine)(places, prompts)
    else:
        answers = constant_asker(job, prepared.constant)(places, prompts)
    lines = (
        record_to_line(make_record(job, place, prompts[place], *answer), job.task.stop, job.task.max_new_tokens)
        for place, answer in zip(places, answers, strict=True)
    )
    return Asked(
        prompt_tokens=engine.prompt_tokens,
        read_tokens=engine.read,
        written_tokens=engine.written,
        looked_at=engine.looked_at,
        record_bytes=weight * sum(len(line.encode()) for line in lines),
        longest=engine.longest,
    )


_INFO = ModelInfo("counted", "counted", "counted", None, "bfloat16", "meta", 1, 1, 1, 1, 1 << 30)


def _backend(engine: CountingEngine, tuner: CountingTuner, reader: Reader) -> Backend:
    def read_prompt(folder: Path) -> SoftPrompt:
        return SoftPrompt(np.zeros((_LOADED_HEIGHT, 1), np.float32), {})

    def adapted(adapter: Adapter) -> nullcontext[CountingEngine]:
        return nullcontext(engine)

    backend = Backend(engine, tuner, tuner.adapt, read_prompt, adapted, lambda seed: backend, reader.chat)
    return backend


def _of_model(
    name: str, size: ModelSize, reader: Reader, counted: dict[str, list[Counted]], spec: Spec
) -> ModelForecast:
    jobs = [one for of_task in counted.values() for one in of_task]
    tasks = {task: sum((amount_of(one, size) for one in of_task), Amount()) for task, of_task in counted.items()}
    longest = max(max(one.asked.longest, one.tuned.longest if one.tuned else 0) for one in jobs)
    return ModelForecast(name, size, reader.exact, tasks, _memory(jobs, size, spec), longest)


def amount_of(one: Counted, size: ModelSize) -> Amount:
    """A forward pass takes 2 operations a parameter and token; a backward one that leaves weights out takes 2 more."""
    asked, head = one.asked, size.num_head_parameters
    of_tuning = Amount()
    if one.tuned is not None:
        of_tuning = Amount(
            tuning_tokens=one.tuned.num_tokens,
            body_flops=4 * size.num_body_parameters * one.tuned.num_tokens,
            head_flops=4 * head * one.tuned.learned,
            disk=_tuned_bytes(one.job, size),
        )
    return of_tuning + Amount(
        jobs=1,
        samples=one.samples,
        prompt_tokens=asked.prompt_tokens,
        read_tokens=asked.read_tokens,
        written_tokens=asked.written_tokens,
        body_flops=2 * size.num_body_parameters * (asked.read_tokens + asked.written_tokens),
        head_flops=2 * head * asked.looked_at,
        # Records are kept by job, and once more in the samples file of the task.
        disk=2 * asked.record_bytes,
    )


def _tuned_bytes(job: Job, size: ModelSize) -> float:
    """What is kept of a tuning: float32 vectors after each checkpoint, or an adapter."""
    settings = job.spec.model_dump()
    if job.spec.kind == "lora":
        hidden, inner, kv = size.hidden_size, size.intermediate_size, size.kv_size
        ends = 4 * hidden + 2 * (hidden + kv) + 3 * (hidden + inner)
        return float(4 * settings["rank"] * size.num_layers * ends)
    kept = 1 + len(settings.get("checkpoints", ()))
    return float(4 * kept * settings["num_virtual_tokens"] * size.hidden_size)


def _memory(jobs: Sequence[Counted], size: ModelSize, spec: Spec) -> Memory:
    """Rough: what is largest, for the longest rows that were looked at."""
    item = ITEM_SIZES[spec.dtype]
    weights = size.num_parameters * item
    if any(one.job.method.random_weights for one in jobs):
        weights *= 2  # the model itself stays
    rows = min(spec.eval_batch_size, max(one.samples for one in jobs))
    cache = 2 * size.num_layers * size.kv_size * item * rows * max(one.asked.longest for one in jobs)
    logits = min(rows * size.vocab_size, _MAX_LOGITS) * (item + 4)
    tuning = max((_tuning_memory(one.job, one.tuned, size, item) for one in jobs if one.tuned), default=0)
    return Memory(weights, cache + logits, tuning)


def _tuning_memory(job: Job, tuned: Tuned, size: ModelSize, item: int) -> int:
    settings = job.spec.model_dump()
    num_tokens = min(settings["batch_size"] * tuned.longest, max(_MAX_TUNED_TOKENS, tuned.longest))
    of_layer = _KEPT_HIDDEN * size.hidden_size + _KEPT_INTERMEDIATE * size.intermediate_size
    of_token = size.num_layers * of_layer
    if settings.get("gradient_checkpointing"):
        of_token = size.num_layers * size.hidden_size + of_layer
    # Logits in the model's dtype, in float32, and the gradient of these.
    of_logits = tuned.learned / int(settings["steps"]) * size.vocab_size * (item + 8)
    return int(num_tokens * of_token * item + of_logits)
