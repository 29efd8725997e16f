"""The main job: every model on every task by every method, from spec to result files."""

import hashlib
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from softbench.backends import BACKENDS, Backend
from softbench.errors import DataError, OutputError, SoftPromptError, SpecError
from softbench.files import safe_name, write_json
from softbench.methods import METHODS, Materials, Method, has_soft_prompt, load_soft_prompt, save_soft_prompt
from softbench.records import RecordFile
from softbench.results import JobResult, Results, write_results
from softbench.scoring.choices import choices_correct
from softbench.scoring.parse import judge
from softbench.spec import MethodSpec, ModelSpec, Spec
from softbench.stats import metrics_of
from softbench.tasks import (
    Task,
    TaskData,
    get_task,
    load_data,
    render_chat_prompt,
    render_prompt,
    samples_hash,
    shuffle_labels,
)
from softbench.types import (
    ChatSettings,
    Completion,
    ModelInfo,
    Prepared,
    Progress,
    Prompt,
    Record,
    Sample,
    TuneResult,
    Verdict,
)

RECORDS, COST = "records.jsonl", "cost.json"

# Samples between two writes of records: what a killed run loses at most. Independent of the batch size, since a
# resumed run must batch as the first one did.
CHUNK = 64


def run(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` and return one Results a model, each already written under `spec.output_path`.

    Work that an earlier run of the same spec finished is read, not done again. Raises SoftbenchError at anything that
    keeps the run from going on; what was done until then is kept.
    """
    loaded = load_tasks(spec)
    check_output(spec.output_path)
    return [run_model(model, spec, loaded, progress) for model in spec.models]


def load_tasks(spec: Spec) -> list[tuple[Task, TaskData]]:
    """The tasks of `spec` with their data, each once. Raises SpecError where two that differ have one name."""
    loaded: dict[str, tuple[Task, TaskData]] = {}
    for name in dict.fromkeys(spec.tasks):
        task = get_task(name, spec.formulation, spec.answer_format, spec.include_path)
        data = load_data(task, spec.data_dir)
        other = loaded.setdefault(task.name, (task, data))
        if (other[0].template_hash, other[1]) != (task.template_hash, data):
            raise SpecError(f"two tasks are called {task.name!r} and differ; give one another name in its file")
    return list(loaded.values())


def run_model(model: ModelSpec, spec: Spec, tasks: Sequence[tuple[Task, TaskData]], progress: Progress) -> Results:
    """Open one model, run all its jobs and write its results; the model leaves memory when this returns."""
    started = time.perf_counter()
    note = " (a .gguf file is converted the first time)" if model.source.endswith(".gguf") else ""
    with progress.track(f"load {model.label}{note}", 1) as advance:
        backend = BACKENDS[spec.engine](model, spec)
        advance(1)
    folder = spec.output_path / safe_name(model.label)
    jobs = [run_job(job, backend, spec, folder, progress) for job in plan(spec, tasks)]
    return write_results(folder, backend.engine.info, spec, jobs, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Job:
    """One method with one seed (None: it uses none) on one task; `label` is what results call the two together."""

    task: Task
    data: TaskData
    test: Sequence[Sample]
    spec: MethodSpec
    method: Method
    seed: int | None
    label: str
    chat: ChatSettings | None


def plan(spec: Spec, tasks: Sequence[tuple[Task, TaskData]]) -> list[Job]:
    """The jobs of one model, in the order of the spec; a method that uses no seed runs once."""
    jobs = []
    for task, data in tasks:
        for method_spec in dict.fromkeys(spec.methods):
            method = METHODS[method_spec.kind](**method_spec.model_dump(exclude={"kind"}))
            seeds: Sequence[int | None] = tuple(dict.fromkeys(spec.seeds)) if method.uses_seed else (None,)
            for seed in seeds:
                label = job_label(method_spec, spec.methods, seed if len(seeds) > 1 else None)
                jobs.append(Job(task, data, data.test[: spec.limit], method_spec, method, seed, label, spec.chat))
    return jobs


def job_label(method: MethodSpec, methods: Sequence[MethodSpec], seed: int | None) -> str:
    """The method's kind, then whatever tells it from others of its kind: `soft_prompt:steps=20:seed=1`."""
    rivals = [other for other in methods if other.kind == method.kind]
    differing = [
        name
        for name in type(method).model_fields
        # A control is named even where it has no rival.
        if len({getattr(other, name) for other in rivals}) > 1
        or (name, getattr(method, name)) == ("labels", "shuffled")
    ]
    parts = [f"{name}={getattr(method, name)}" for name in differing]
    return ":".join([method.kind, *parts, *([] if seed is None else [f"seed={seed}"])])


def run_job(job: Job, backend: Backend, spec: Spec, folder: Path, progress: Progress) -> JobResult:
    """Prepare the method, complete and score every test sample, and read off the metrics."""
    key = job_key(job, backend, spec)
    job_folder = folder / "jobs" / safe_name(f"{job.task.name}-{job.spec.kind}-{key[:12]}")
    name = f"{backend.engine.info.name} {job.task.name} {job.label}"
    prepared, tuning_cost = prepare(job, backend, job_folder, name, progress)
    kept, evaluation_cost = evaluate(job, prepared, backend, job_folder, name, progress)
    records = [replace(record, method=job.label) for record in kept]
    return JobResult(
        task=job.task,
        data=job.data,
        method=job.spec.kind,
        label=job.label,
        seed=job.seed,
        settings=job.spec.model_dump(),
        num_fewshot=job.method.num_fewshot,
        records=records,
        metrics=metrics_of(records),
        cost={**tuning_cost, **evaluation_cost},
        soft_prompt_sha256=None if prepared.soft_prompt is None else prepared.soft_prompt.card["sha256"],
        chat=chat_block(job, backend),
        folder=job_folder,
    )


def prepare(
    job: Job, backend: Backend, folder: Path, name: str, progress: Progress
) -> tuple[Prepared, Mapping[str, Any]]:
    """What the method puts before each sample, and what that cost; a whole soft prompt in `folder` is taken."""
    info = backend.engine.info
    if job.method.num_steps and has_soft_prompt(folder):
        try:
            soft_prompt = load_soft_prompt(folder, info)
            return Prepared(soft_prompt=soft_prompt), soft_prompt.card["cost"]
        except SoftPromptError as error:
            progress.note(str(error))
    started = time.perf_counter()
    tune_samples: Sequence[Sample] = job.data.tune
    if job.method.labels == "shuffled":
        tune_samples = shuffle_labels(job.task, tune_samples, np.random.default_rng(job.seed))
    prompts = make_prompts(job, backend, tune_samples, Prepared(), 0)
    with progress.track(f"{name}: tune", job.method.num_steps) as advance:
        prepared = job.method.prepare(
            Materials(
                shot_samples=shot_pool(job.data, job.method.num_fewshot),
                tune_prompts=prompts,
                init_text=job.task.description or prompts[0].text,
                tuner=backend.tuner,
                seed=job.seed or 0,
                on_step=lambda loss: advance(1, f"loss {loss:.3f}"),
            )
        )
    if prepared.soft_prompt is None or prepared.tuning is None:
        return prepared, {}
    cost = tuning_cost(prepared.tuning, info, time.perf_counter() - started)
    card = {
        "task": job.task.name,
        "template_hash": job.task.template_hash,
        "settings": job.spec.model_dump(),
        "seed": job.seed,
        "losses": prepared.tuning.losses,
        "cost": cost,
    }
    # Records of a prompt that was lost are not those of this one.
    (folder / RECORDS).unlink(missing_ok=True)
    (folder / COST).unlink(missing_ok=True)
    return Prepared(soft_prompt=save_soft_prompt(folder, prepared.soft_prompt, info, card)), cost


def shot_pool(data: TaskData, num_fewshot: int) -> list[Sample]:
    """What worked examples are drawn from: the benchmark's own shots, or else the tuning split.

    A group whose own shots are too few, some having been dropped as leaks, is filled up from the tuning split.
    """
    if not data.shots:
        return list(data.tune)
    pool = list(data.shots)
    counts = Counter(sample.group for sample in pool)
    shown = {repr(sample.fields) for sample in pool}
    for sample in data.tune:
        if counts[sample.group] < num_fewshot and repr(sample.fields) not in shown:
            pool.append(sample)
            counts[sample.group] += 1
    return pool


def tuning_cost(tuning: TuneResult, info: ModelInfo, seconds: float) -> dict[str, Any]:
    """What tuning took; docs/metrics.md says how operations are counted."""
    trainable = int(tuning.soft_prompt.vectors.size)
    return {
        "tuning_seconds": seconds,
        "tuning_steps": len(tuning.losses),
        "tuning_samples": tuning.num_samples,
        "tuning_tokens": tuning.num_tokens,
        "tuning_flops": 4 * info.num_body_parameters * tuning.num_tokens,
        "trainable_parameters": trainable,
        "trainable_share": trainable / info.num_parameters,
    }


def evaluate(
    job: Job, prepared: Prepared, backend: Backend, folder: Path, name: str, progress: Progress
) -> tuple[list[Record], dict[str, Any]]:
    """The record of every test sample, and what they cost; chunks already in `folder` are not done again."""
    engine, task = backend.engine, job.task
    prompts = make_prompts(job, backend, job.test, prepared, job.method.num_fewshot)
    file = RecordFile(folder / RECORDS)
    cost = read_cost(folder / COST)
    with progress.track(f"{name}: evaluate", len(prompts)) as advance:
        for doc_ids in chunks(prompts):
            if not file.has(doc_ids):
                started, tokens_before = time.perf_counter(), engine.tokens_read
                chunk = [prompts[doc_id] for doc_id in doc_ids]
                completions: Sequence[Completion | None] = [None] * len(chunk)
                if task.generates:
                    completions = engine.generate(chunk, prepared.soft_prompt, task.max_new_tokens, task.stop)
                scores = engine.score_choices(chunk, prepared.soft_prompt)
                records = [
                    make_record(job, doc_id, prompts[doc_id], completion, score)
                    for doc_id, completion, score in zip(doc_ids, completions, scores, strict=True)
                ]
                file.append(records, task.stop, task.max_new_tokens)
                tokens = engine.tokens_read - tokens_before
                cost["evaluation_seconds"] += time.perf_counter() - started
                cost["evaluation_tokens"] += tokens
                cost["evaluation_flops"] += 2 * engine.info.num_body_parameters * tokens
                cost["evaluation_peak_memory_bytes"] = max(cost["evaluation_peak_memory_bytes"], peak_memory())
                write_json(folder / COST, cost)
            advance(len(doc_ids))
    return file.in_order(), cost


def make_prompts(
    job: Job, backend: Backend, samples: Sequence[Sample], prepared: Prepared, num_fewshot: int
) -> list[Prompt]:
    """The prompt for each sample: as the task itself writes it, as a conversation, or as plain text."""
    task = job.task
    if task.write_prompts is not None:
        if job.chat is not None:
            raise SpecError(f"task {task.name!r} writes its own prompts; drop --apply-chat-template")
        return task.write_prompts(samples, num_fewshot, job.seed or 0)
    shots = [shots_for(sample, prepared) for sample in samples]
    pairs = zip(samples, shots, strict=True)
    if job.chat is None or backend.chat is None:
        return [render_prompt(task, sample, of_sample) for sample, of_sample in pairs]
    return [render_chat_prompt(task, sample, of_sample, backend.chat, job.chat) for sample, of_sample in pairs]


def shots_for(sample: Sample, prepared: Prepared) -> Sequence[Sample]:
    """The shots of the sample's group; raises DataError where there are some, but none for this group."""
    if prepared.shots and sample.group not in prepared.shots:
        raise DataError(f"sample {sample.id!r}: group {sample.group!r} has too few samples to draw shots from")
    return prepared.shots.get(sample.group, ())


def make_record(job: Job, doc_id: int, prompt: Prompt, completion: Completion | None, scores: Any) -> Record:
    """Parse and judge one sample."""
    sample = job.test[doc_id]
    if completion is None:
        verdict: dict[str, Any] = {field.name: None for field in fields(Verdict)}
    else:
        verdict = asdict(judge(completion, job.task.answer_format, sample))
    return Record(
        doc_id=doc_id,
        sample=sample,
        method=job.spec.kind,
        seed=job.seed,
        prompt=prompt,
        completion=completion,
        **verdict,
        choice_scores=scores,
        choice_correct=choices_correct(scores, prompt.continuations, sample.gold),
    )


def chunks(prompts: Sequence[Prompt]) -> Iterator[list[int]]:
    """Indices of `prompts` in chunks, longest first: one that is too long shows at the start and not hours later."""
    order = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index].text), index))
    for start in range(0, len(order), CHUNK):
        yield order[start : start + CHUNK]


def chat_block(job: Job, backend: Backend) -> dict[str, Any] | None:
    """How prompts became conversations, with the hash of the model's template; None where they did not."""
    if job.chat is None or backend.chat is None:
        return None
    return {**asdict(job.chat), "template_hash": backend.chat.hash}


def job_key(job: Job, backend: Backend, spec: Spec) -> str:
    """Hash of everything that changes a job's records: equal keys mean that finished work can be taken over."""
    info = backend.engine.info
    parts = {
        "records": 1,  # to be raised when parsing, rows or the records' schema change
        "model": info.fingerprint,
        "name": info.name,
        "dtype": info.dtype,
        "device": info.device,
        "engine": spec.engine,
        "eval_batch_size": spec.eval_batch_size,
        "template": job.task.template_hash,
        "chat": chat_block(job, backend),
        "shots": samples_hash(job.data.shots),
        "tune": samples_hash(job.data.tune),
        "test": samples_hash(job.test),
        "method": job.spec.model_dump(),
        "seed": job.seed,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def check_output(path: Path) -> None:
    """Raise OutputError unless `path` is, or can become, a folder that can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".softbench-probe"
        probe.touch()
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"output path {str(path)!r} is, or lies under, a file; give a folder") from None
    except OSError as error:
        raise OutputError(f"output path {str(path)!r} can't be written to: {error.strerror}") from error


def peak_memory() -> int:
    """Most memory that this process has held so far, in bytes: the GPU's where torch uses one, else the host's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def read_cost(path: Path) -> dict[str, Any]:
    """What the chunks already done cost; zeros where the file is missing or damaged, as no result hangs on it."""
    names = ("evaluation_seconds", "evaluation_tokens", "evaluation_flops", "evaluation_peak_memory_bytes")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return {name: max(0, value[name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return dict.fromkeys(names, 0)
