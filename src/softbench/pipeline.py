"""The main job: every model on every task by every method, from spec to result files."""

import hashlib
import json
import re
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softbench.backends import BACKENDS, Backend
from softbench.errors import OutputError, SoftPromptError
from softbench.files import write_json
from softbench.methods import METHODS, Materials, Method, load_soft_prompt, save_soft_prompt
from softbench.records import RecordFile
from softbench.results import JobResult, Results, write_results
from softbench.scoring.choices import choices_correct
from softbench.scoring.parse import parse_completion
from softbench.spec import MethodSpec, Spec
from softbench.stats import metrics_of
from softbench.tasks import Task, TaskData, get_task, load_data, render_prompt, samples_hash
from softbench.types import Completion, Prepared, Progress, Prompt, Record, Sample

# Samples between two writes of records: what a killed run loses at most. Independent of the batch size, since a
# resumed run must batch as the first one did.
CHUNK = 64


def run(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` and return one Results a model, each already written under `spec.output_path`.

    Work that an earlier run of the same spec finished is read, not done again. Raises SoftbenchError at anything that
    keeps the run from going on; what was done until then is kept.
    """
    tasks = [(task, load_data(task, spec.data_dir)) for task in (get_task(name) for name in dict.fromkeys(spec.tasks))]
    check_output(spec.output_path)
    results = []
    for model in spec.models:
        started = time.perf_counter()
        note = " (a .gguf file is converted the first time)" if model.source.endswith(".gguf") else ""
        with progress.track(f"load {model.label}{note}", 1) as advance:
            backend = BACKENDS[spec.engine](model, spec)
            advance(1)
        folder = spec.output_path / safe_name(model.label)
        jobs = [run_job(job, backend, spec, folder, progress) for job in plan(spec, tasks)]
        results.append(write_results(folder, backend.engine.info, spec, jobs, time.perf_counter() - started))
    return results


@dataclass(frozen=True, slots=True)
class Job:
    """One method with one seed on one task."""

    task: Task
    data: TaskData
    test: Sequence[Sample]
    spec: MethodSpec
    method: Method
    seed: int
    label: str


def plan(spec: Spec, tasks: Sequence[tuple[Task, TaskData]]) -> list[Job]:
    """The jobs of one model, in the order of the spec; a method that uses no seed runs once."""
    jobs = []
    for task, data in tasks:
        for method_spec in spec.methods:
            method = METHODS[method_spec.kind](**method_spec.model_dump(exclude={"kind"}))
            seeds = spec.seeds if method.uses_seed else spec.seeds[:1]
            for seed in dict.fromkeys(seeds):
                label = method_spec.kind + (f"_s{seed}" if len(seeds) > 1 else "")
                jobs.append(Job(task, data, data.test[: spec.limit], method_spec, method, seed, label))
    return jobs


def run_job(job: Job, backend: Backend, spec: Spec, folder: Path, progress: Progress) -> JobResult:
    """Prepare the method, complete and score every test sample, and read off the metrics."""
    key = job_key(job, backend, spec)
    job_folder = folder / "jobs" / safe_name(f"{job.task.name}-{job.label}-{key[:12]}")
    name = f"{backend.engine.info.name} {job.task.name} {job.label}"
    prepared, cost = prepare(job, backend, job_folder, name, progress)
    records, evaluation_cost = evaluate(job, prepared, backend, job_folder, name, progress)
    cost |= evaluation_cost
    write_json(job_folder / "cost.json", cost)
    return JobResult(
        task=job.task,
        data=job.data,
        method=job.spec.kind,
        label=job.label,
        seed=job.seed if job.method.uses_seed else None,
        settings=job.spec.model_dump(),
        num_fewshot=job.method.num_fewshot,
        records=records,
        metrics=metrics_of(records),
        cost=cost,
        soft_prompt_sha256=None if prepared.soft_prompt is None else prepared.soft_prompt.card["sha256"],
        folder=job_folder,
    )


def prepare(job: Job, backend: Backend, folder: Path, name: str, progress: Progress) -> tuple[Prepared, dict[str, Any]]:
    """What the method puts before each sample, and what that cost; a soft prompt already in `folder` is taken."""
    cost = _read_cost(folder)
    info = backend.engine.info
    if job.method.num_steps and "tuning_seconds" in cost:
        try:
            return Prepared(soft_prompt=load_soft_prompt(folder, info)), cost
        except SoftPromptError as error:
            progress.note(str(error))
    started = time.perf_counter()
    prompts = [render_prompt(job.task, sample) for sample in job.data.tune]
    with progress.track(f"{name}: tune", job.method.num_steps) as advance:
        prepared = job.method.prepare(
            Materials(
                tune_samples=job.data.tune,
                tune_prompts=prompts,
                init_text=job.task.description or prompts[0].text,
                tuner=backend.tuner,
                seed=job.seed,
                on_step=lambda loss: advance(1, f"loss {loss:.3f}"),
            )
        )
    if prepared.soft_prompt is None or prepared.tuning is None:
        return prepared, {}
    tuning = prepared.tuning
    card = {
        "task": job.task.name,
        "template_hash": job.task.template_hash,
        "settings": job.spec.model_dump(),
        "seed": job.seed,
        "losses": tuning.losses,
    }
    soft_prompt = save_soft_prompt(folder, prepared.soft_prompt, info, card)
    trainable = int(soft_prompt.vectors.size)
    cost = {
        "tuning_seconds": time.perf_counter() - started,
        "tuning_steps": len(tuning.losses),
        "tuning_samples": tuning.num_samples,
        "tuning_tokens": tuning.num_tokens,
        # A forward pass takes 2 operations a parameter and token; the backward pass to the inputs alone as many again.
        "tuning_flops": 4 * info.num_body_parameters * tuning.num_tokens,
        "trainable_parameters": trainable,
        "trainable_share": trainable / info.num_parameters,
    }
    write_json(folder / "cost.json", cost)
    return Prepared(shots=prepared.shots, soft_prompt=soft_prompt), cost


def evaluate(
    job: Job, prepared: Prepared, backend: Backend, folder: Path, name: str, progress: Progress
) -> tuple[list[Record], dict[str, Any]]:
    """The record of every test sample, and what evaluation cost; chunks already in `folder` are not done again."""
    engine, task = backend.engine, job.task
    prompts = [render_prompt(task, sample, prepared.shots) for sample in job.test]
    file = RecordFile(folder / "records.jsonl")
    started, tokens_before, done_now = time.perf_counter(), engine.tokens_read, 0
    with progress.track(f"{name}: evaluate", len(prompts)) as advance:
        for doc_ids in chunks(prompts):
            if not file.has(doc_ids):
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
                done_now += len(chunk)
            advance(len(doc_ids))
    if done_now == 0:
        return file.in_order(), {
            key: value for key, value in _read_cost(folder).items() if key.startswith("evaluation")
        }
    tokens = engine.tokens_read - tokens_before
    return file.in_order(), {
        "evaluation_seconds": time.perf_counter() - started,
        "evaluation_samples": done_now,
        "evaluation_tokens": tokens,
        "evaluation_flops": 2 * engine.info.num_body_parameters * tokens,
        "evaluation_peak_memory_bytes": peak_memory(),
    }


def make_record(job: Job, doc_id: int, prompt: Prompt, completion: Completion | None, scores: Any) -> Record:
    """Parse and judge one sample."""
    sample, answer_format = job.test[doc_id], job.task.answer_format
    parsed = lenient = None
    if completion is not None:
        parsed = parse_completion(completion, answer_format, sample.choices)
        lenient = answer_format.find(completion.text, sample.choices)
    return Record(
        doc_id=doc_id,
        sample=sample,
        method=job.label,
        seed=job.seed,
        prompt=prompt,
        completion=completion,
        status=None if parsed is None else parsed.status,
        answer=None if parsed is None else parsed.answer,
        correct=None if parsed is None else answer_format.is_right(parsed.answer, sample.answers),
        lenient_answer=lenient,
        lenient_correct=None if completion is None else answer_format.is_right(lenient, sample.answers),
        choice_scores=scores,
        choice_correct=choices_correct(scores, prompt.continuations, sample.gold),
    )


def chunks(prompts: Sequence[Prompt]) -> Iterator[list[int]]:
    """Indices of `prompts` in chunks, longest first: a prompt that is too long ends the run before it has begun."""
    order = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index].text), index))
    for start in range(0, len(order), CHUNK):
        yield order[start : start + CHUNK]


def job_key(job: Job, backend: Backend, spec: Spec) -> str:
    """Hash of everything that changes a job's records: equal keys mean that finished work can be taken over."""
    info = backend.engine.info
    parts = {
        "records": 1,  # the records' schema
        "model": info.fingerprint,
        "name": info.name,
        "dtype": info.dtype,
        "device": info.device,
        "engine": spec.engine,
        "eval_batch_size": spec.eval_batch_size,
        "template": job.task.template_hash,
        "tune": samples_hash(job.data.tune),
        "test": samples_hash(job.test),
        "method": job.spec.model_dump(),
        "label": job.label,
        "seed": job.seed if job.method.uses_seed else None,
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


def safe_name(name: str) -> str:
    """`name` as one component of a path: letters, digits, `_`, `-` and `.`, the last not in front."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "_"


def peak_memory() -> int:
    """Most memory that this process has held so far, in bytes: the device's where torch uses one, else the host's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read_cost(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # only times and counts of a run that was cut off: the work is done again
    return value if isinstance(value, dict) else {}
