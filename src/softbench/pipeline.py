"""The main job: every model on every task by every method, from spec to result files."""

import functools
import hashlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from softbench.backends import BACKENDS, Backend
from softbench.engines.base import Engine
from softbench.errors import DataError, ModelError, OutputError, SoftPromptError, SpecError, TuningError, first_line
from softbench.files import locked, safe_name, write_json
from softbench.methods import METHODS, Materials, Method
from softbench.methods.soft_prompt import SoftPromptTuning
from softbench.methods.state import remove_state, state_in
from softbench.records import RecordFile
from softbench.results import JobResult, Results, write_results
from softbench.saved_records import SavedRecords
from softbench.scoring.choices import choices_correct
from softbench.scoring.parse import judge
from softbench.spec import MethodSpec, ModelSpec, Spec
from softbench.stats import metrics_of
from softbench.tasks import (
    Task,
    TaskData,
    choice_answers,
    get_task,
    load_data,
    num_shared,
    render_chat_prompt,
    render_prompt,
    samples_hash,
    shuffle_labels,
    shuffle_options,
)
from softbench.types import (
    SILENT,
    ChatSettings,
    ChoiceScore,
    ChoiceScores,
    Completion,
    Keeper,
    OnStep,
    Prepared,
    Progress,
    Prompt,
    Record,
    Sample,
    SoftPrompt,
    Status,
    TuneFailure,
    Verdict,
)
from softbench.untrusted import load_json, read_text

try:
    import resource
except ImportError:  # Windows does not say how much memory a process has held
    resource = None  # type: ignore[assignment]

LOG = logging.getLogger("softbench")

RECORDS, COST, TUNED = "records.jsonl", "cost.json", "tuned"

# Samples between two writes of records: what a killed run loses at most. Independent of the batch size, since a
# resumed run must batch as the first one did.
CHUNK = 64


def run(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` and return one Results a model, each already written under `spec.output_path`.

    Work that an earlier run of the same spec finished is read, not done again. Raises SoftbenchError at anything that
    keeps the run from going on, another run in the same folder among it; what was done until then is kept.
    """
    if spec.executor != "serial":
        raise SpecError(f"pipeline.run is serial; call executors.run for executor {spec.executor!r}")
    loaded = load_tasks(spec, progress)
    check_output(spec.output_path)
    with locked_folders(spec) as checks:
        return [
            run_model(model, spec, loaded, progress, check) for model, check in zip(spec.models, checks, strict=True)
        ]


@contextmanager
def locked_folders(spec: Spec) -> Iterator[list[Callable[[], None]]]:
    """Hold the folders of all models, so that no other run writes there; yields for each a check that it is still it.

    Raises OutputError where another run holds one.
    """
    with ExitStack() as held:
        yield [held.enter_context(locked(model_folder(model, spec))) for model in spec.models]


def load_tasks(spec: Spec, progress: Progress = SILENT) -> list[tuple[Task, TaskData]]:
    """The tasks of `spec` with their data, each once. Raises SpecError where two that differ have one name."""
    loaded: dict[str, tuple[Task, TaskData]] = {}
    names = list(dict.fromkeys(spec.tasks))
    with progress.track("load tasks", len(names)) as advance:
        for name in names:
            task = get_task(name, spec.formulation, spec.answer_format, spec.include_path)
            data = load_data(task, spec.data_dir)
            other = loaded.setdefault(task.name, (task, data))
            if (other[0].template_hash, other[1]) != (task.template_hash, data):
                raise SpecError(f"two tasks are called {task.name!r} and differ; give one another name in its file")
            advance(1, name)
    return list(loaded.values())


def run_model(
    model: ModelSpec,
    spec: Spec,
    tasks: Sequence[tuple[Task, TaskData]],
    progress: Progress,
    check_folder: Callable[[], None],
) -> Results:
    """Open one model, run all its jobs and write its results; the model leaves memory when this returns."""
    started = time.perf_counter()
    backend = open_model(model, spec, progress)
    folder = model_folder(model, spec)
    jobs = run_jobs(plan(spec, tasks), backend, spec, folder, progress)
    check_folder()
    return write_results(folder, backend.engine.info, spec, jobs, time.perf_counter() - started)


def open_model(model: ModelSpec, spec: Spec, progress: Progress) -> Backend:
    """Load the model, or whatever stands in for it."""
    backend = BACKENDS[spec.engine](model, spec, progress)
    info = backend.engine.info
    LOG.info("%s: %s on %s in %s, %d parameters", info.name, spec.engine, info.device, info.dtype, info.num_parameters)
    return backend


def model_folder(model: ModelSpec, spec: Spec) -> Path:
    """Where all that is kept of the model goes."""
    return spec.output_path / safe_name(model.label)


def run_jobs(
    planned: Sequence["Job"], backend: Backend, spec: Spec, folder: Path, progress: Progress
) -> list[JobResult]:
    """Run jobs of one model, all of them where their soft prompts are tuned together."""
    try:
        if spec.tune_together:
            planned = tune_together(planned, backend, folder / TUNED, progress)
        return [run_job(job, backend, spec, folder, progress) for job in planned]
    except RuntimeError as error:
        if spec.deterministic and "deterministic" in str(error):
            raise ModelError(
                f"{backend.engine.info.name} can't be run deterministically here ({first_line(error)}); drop "
                "--deterministic, or give --device cpu"
            ) from error
        raise


@dataclass(frozen=True, slots=True)
class Job:
    """One method with one seed (None: it uses none) on one task; `label` is what results call the two together.

    `checkpoint` is the tuning step whose vectors are evaluated, None being the last; `pmi` asks for options' scores
    without the question, too. `tuned_with` is a hash of all that is tuned in the same passes, where there is more.
    """

    task: Task
    data: TaskData
    test: Sequence[Sample]
    spec: MethodSpec
    method: Method
    seed: int | None
    label: str
    chat: ChatSettings | None
    checkpoint: int | None = None
    pmi: bool = False
    tuned_with: str | None = None


def plan(spec: Spec, tasks: Sequence[tuple[Task, TaskData]]) -> list[Job]:
    """The jobs of one model, in the order of the spec; a method that uses no seed runs once."""
    jobs = []
    for task, data in tasks:
        for method_spec in dict.fromkeys(spec.methods):
            method = METHODS[method_spec.kind](**method_spec.model_dump(exclude={"kind"}))
            seeds: Sequence[int | None] = tuple(dict.fromkeys(spec.seeds)) if method.uses_seed else (None,)
            for seed in seeds:
                test: Sequence[Sample] = data.test[: spec.limit]
                if method.options == "shuffled":
                    if not any(sample.choices for sample in test):
                        continue  # open questions have no options that could change places
                    test = shuffle_options(task, test, np.random.default_rng(seed))
                for checkpoint in (*sorted(set(method.checkpoints)), None):
                    label = job_label(method_spec, spec.methods, seed if len(seeds) > 1 else None, checkpoint)
                    jobs.append(
                        Job(task, data, test, method_spec, method, seed, label, spec.chat, checkpoint, spec.pmi)
                    )
    return jobs


CONTROLS = {"labels": "shuffled", "loss_on": "format", "options": "shuffled"}
"""Settings that are named in a job's label where they have this value, whatever else is run."""


def job_label(
    method: MethodSpec, methods: Sequence[MethodSpec], seed: int | None, checkpoint: int | None = None
) -> str:
    """The method's kind, then whatever tells it from others of its kind: `soft_prompt:steps=20:seed=1`."""
    rivals = [other for other in methods if other.kind == method.kind]
    differing = [
        name
        for name in type(method).model_fields
        if name != "checkpoints"
        and (
            getattr(method, name) == CONTROLS[name]
            if name in CONTROLS
            else len({getattr(other, name, None) for other in rivals}) > 1
        )
    ]
    parts = [f"{name}={getattr(method, name)}" for name in differing]
    if checkpoint is not None:
        parts.append(f"step={checkpoint}")
    return ":".join([method.kind, *parts, *([] if seed is None else [f"seed={seed}"])])


def run_job(job: Job, backend: Backend, spec: Spec, folder: Path, progress: Progress) -> JobResult:
    """Prepare the method, complete and score every test sample, and read off the metrics."""
    if job.method.random_weights:
        backend = backend.randomised(job.seed or 0)
    name = f"{backend.engine.info.name} {job.task.name} {job.label}"
    prepared = prepare(job, backend, folder / TUNED, name, progress)
    card = tuned_card(prepared)
    key = job_key(job, backend, spec, card.get("sha256"))
    job_folder = folder / "jobs" / safe_name(f"{job.task.name}-{job.spec.kind}-{key[:12]}")
    lent = nullcontext(backend.engine) if prepared.adapter is None else backend.adapted(prepared.adapter)
    with lent as engine:
        cost = evaluate(job, prepared, backend, engine, job_folder, name, progress)
    records = SavedRecords(job_folder / RECORDS, len(job.test), job.label)
    return JobResult(
        task=job.task,
        data=job.data,
        method=job.spec.kind,
        label=job.label,
        seed=job.seed,
        checkpoint=job.checkpoint,
        settings=job.spec.model_dump(mode="json"),
        num_fewshot=job.method.num_fewshot,
        records=records,
        metrics=metrics_of(records.outcomes),
        cost={**card.get("cost", {}), **cost},
        tuned_sha256=card.get("sha256"),
        failed_tries=card.get("failed_tries", []),
        chat=chat_block(job, backend),
        folder=job_folder,
    )


def prepare(job: Job, backend: Backend, folder: Path, name: str, progress: Progress) -> Prepared:
    """What the method makes once; what was tuned before is taken from `folder`, or goes there."""
    info, method = backend.engine.info, job.method
    if not method.num_steps:
        return method.prepare(materials(job, backend, lambda loss: None))
    place = folder / tuned_name(job, backend)
    kept = tuned_before(job, backend, place, progress)
    if kept is not None:
        LOG.info("%s: taken from an earlier tuning, %s", name, place)
        remove_state(place)  # of a run that was killed behind its last step
        return kept
    with state_in(place, progress.note) as keeper, progress.track(f"{name}: tune", method.num_steps) as advance:
        prepared = method.prepare(materials(job, backend, lambda loss: advance(1, f"loss {loss:.3f}"), keeper))
        method.save(place, prepared, info, card_of(job))
    saved = method.load(place, info, job.checkpoint)
    assert saved is not None  # it was saved a line above
    return saved


def tune_together(jobs: Sequence[Job], backend: Backend, folder: Path, progress: Progress) -> list[Job]:
    """Tune the soft prompts of all jobs in the same passes, unless `folder` has them; the jobs, knowing of each other.

    What is learned differs from what each would learn alone by rounding, so that the two are kept apart. Raises
    TuningError where one comes to a number that is none, when all others are tuned and saved.
    """

    def joins(job: Job) -> bool:
        return isinstance(job.method, SoftPromptTuning) and not job.method.random_weights

    group = _hash({"tuned_with": sorted({tuning_key(job, backend) for job in jobs if joins(job)})})
    jobs = [replace(job, tuned_with=group) if joins(job) else job for job in jobs]
    joined = [(folder / tuned_name(job, backend), job) for job in jobs if job.tuned_with]
    state_folder = folder / f"together-{group[:12]}"
    if all(tuned_before(job, backend, place, progress) is not None for place, job in joined):
        remove_state(state_folder)
        return jobs
    together = dict(joined)  # checkpoints of one tuning lie in one place
    requests = [
        job.method.request(materials(job, backend, lambda loss: None))
        for job in together.values()
        if isinstance(job.method, SoftPromptTuning)
    ]
    steps = sum(request.settings.steps for request in requests)
    failures = []
    with (
        state_in(state_folder, progress.note) as keeper,
        progress.track(f"{backend.engine.info.name}: tune {len(together)} soft prompts", steps) as advance,
    ):
        made = backend.tuner(requests, lambda loss: advance(1, f"loss {loss:.3f}"), keeper)
        for (place, job), one in zip(together.items(), made, strict=True):
            if isinstance(one, TuneFailure):
                failures.append(f"{job.task.name} {job.label}: {one.why}")
                continue
            card = card_of(job) | {"tuned_together": len(together)}
            job.method.save(place, Prepared(soft_prompt=one.soft_prompt, tuning=one), backend.engine.info, card)
        if failures:
            raise TuningError("; ".join(failures))
    return jobs


def tuned_before(job: Job, backend: Backend, place: Path, progress: Progress) -> Prepared | None:
    """What an earlier run tuned for the job and left in `place`; None, with a note where it is damaged, if nothing."""
    try:
        return job.method.load(place, backend.engine.info, job.checkpoint)
    except SoftPromptError as error:
        progress.note(str(error))
        return None


def tuned_name(job: Job, backend: Backend) -> str:
    """The folder of what the job tunes."""
    return safe_name(f"{job.task.name}-{job.spec.kind}-{tuning_key(job, backend)[:12]}")


def card_of(job: Job) -> dict[str, Any]:
    """What the card of what was tuned says of the job."""
    return {
        "task": job.task.name,
        "answer_format": job.task.answer_format.instruction(),
        "template_hash": job.task.template_hash,
        "settings": job.spec.model_dump(mode="json"),
        "seed": job.seed,
    }


def materials(job: Job, backend: Backend, on_step: OnStep, keeper: Keeper | None = None) -> Materials:
    """What the job's method may use: the tuning split, and whatever tunes, with `keeper` to keep its state."""
    task, samples = job.task, list(job.data.tune)
    if job.method.labels == "shuffled":
        samples = shuffle_labels(task, samples, np.random.default_rng(job.seed))
    # Prompts are written where something is tuned on them; zero- and few-shot never look at them.
    prompts = make_prompts(job, backend, samples, Prepared(), 0) if job.method.num_steps else []

    def format_following(soft_prompt: SoftPrompt, places: Sequence[int]) -> float:
        asked = [prompts[place] for place in places]
        completions = backend.engine.generate(asked, soft_prompt, task.max_new_tokens, task.stop)
        verdicts = [
            judge(completion, task.answer_format, samples[place])
            for completion, place in zip(completions, places, strict=True)
        ]
        return sum(verdict.status is Status.OK for verdict in verdicts) / len(verdicts)

    return Materials(
        tune_samples=samples,
        shot_samples=shot_pool(job.data, job.method.num_fewshot),
        tune_prompts=prompts,
        init_text=task.description or (prompts[0].text if prompts else ""),
        answer_format=task.answer_format.instruction(),
        info=backend.engine.info,
        tuner=functools.partial(backend.tuner, keeper=keeper),
        adapter_tuner=functools.partial(backend.adapter_tuner, keeper=keeper),
        format_following=format_following if task.generates else None,
        read_prompt=backend.read_prompt,
        seed=job.seed or 0,
        on_step=on_step,
    )


def tuned_card(prepared: Prepared) -> Mapping[str, Any]:
    """The card of what was tuned; empty where nothing was."""
    if prepared.adapter is not None:
        return prepared.adapter.card
    return {} if prepared.soft_prompt is None else prepared.soft_prompt.card


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


def evaluate(
    job: Job, prepared: Prepared, backend: Backend, engine: Engine, folder: Path, name: str, progress: Progress
) -> dict[str, Any]:
    """Write the record of every test sample to `folder`; what they cost. Chunks already there are not done again."""
    task = job.task
    prompts = make_prompts(job, backend, job.test, prepared, job.method.num_fewshot)
    asker = (
        constant_asker(job, prepared.constant) if prepared.constant is not None else engine_asker(job, prepared, engine)
    )
    file = RecordFile(folder / RECORDS)
    cost = read_cost(folder / COST)
    left = [ids for ids in chunks(prompts, [sample.group for sample in job.test]) if not file.has(ids)]
    there = len(prompts) - sum(map(len, left))
    if there:
        LOG.info("%s: %d of %d samples are there from an earlier run, %s", name, there, len(prompts), folder)
    with progress.track(f"{name}: evaluate", len(prompts), there) as advance:
        for doc_ids in left:
            started, tokens_before = time.perf_counter(), engine.tokens_read
            answers = asker(doc_ids, [prompts[doc_id] for doc_id in doc_ids])
            records = [
                make_record(job, doc_id, prompts[doc_id], *answer)
                for doc_id, answer in zip(doc_ids, answers, strict=True)
            ]
            file.append(records, task.stop, task.max_new_tokens)
            tokens = engine.tokens_read - tokens_before
            cost["evaluation_seconds"] += time.perf_counter() - started
            cost["evaluation_tokens"] += tokens
            cost["evaluation_flops"] += 2 * engine.info.num_body_parameters * tokens
            cost["evaluation_peak_memory_bytes"] = max(cost["evaluation_peak_memory_bytes"], peak_memory())
            write_json(folder / COST, cost)
            advance(len(doc_ids))
    return cost


Answer = tuple[Completion | None, ChoiceScores]
Asker = Callable[[Sequence[int], Sequence[Prompt]], list[Answer]]
"""Asks for the answers to test samples, by place and prompt."""


def engine_asker(job: Job, prepared: Prepared, engine: Engine) -> Asker:
    """Asks a model: for completions where the task generates, and for the options' log-likelihoods."""
    task, soft_prompt = job.task, prepared.soft_prompt
    without_question: dict[tuple[str, ...], ChoiceScores] = {}

    def ask(doc_ids: Sequence[int], prompts: Sequence[Prompt]) -> list[Answer]:
        completions: Sequence[Completion | None] = [None] * len(prompts)
        if task.generates:
            completions = engine.generate(prompts, soft_prompt, task.max_new_tokens, task.stop)
        scores = engine.score_choices(prompts, soft_prompt)
        # Under a chat template no text is there but for the question's.
        if job.pmi and task.premise and job.chat is None:
            new = [
                Prompt("premise", task.premise, "", options)
                for options in dict.fromkeys(prompt.continuations for prompt in prompts)
                if options and options not in without_question
            ]
            found = engine.score_choices(new, soft_prompt)
            without_question.update((one.continuations, of_one) for one, of_one in zip(new, found, strict=True))
            scores = [
                with_premise(of_prompt, without_question[prompt.continuations]) if prompt.continuations else of_prompt
                for prompt, of_prompt in zip(prompts, scores, strict=True)
            ]
        return list(zip(completions, scores, strict=True))

    return ask


def with_premise(scores: ChoiceScores, premise: ChoiceScores) -> ChoiceScores:
    """The scores, each option with what it has where there is no question."""
    options = tuple(
        replace(option, premise_logprob=bare.logprob)
        for option, bare in zip(scores.options, premise.options, strict=True)
    )
    return replace(scores, options=options)


def constant_asker(job: Job, constant: int | str) -> Asker:
    """Answers every sample alike, in form: with the option at a place, or with a text."""

    def ask(doc_ids: Sequence[int], prompts: Sequence[Prompt]) -> list[Answer]:
        answers: list[Answer] = []
        for doc_id in doc_ids:
            options = choice_answers(job.task, job.test[doc_id])
            place = constant if isinstance(constant, int) and constant < len(options) else 0
            said = constant if isinstance(constant, str) else options[place]
            text = " " + job.task.answer_format.render(said)
            completion = Completion(text, "eos", 0, 0) if job.task.generates else None
            scores = tuple(ChoiceScore(0.0 if one == place else -1.0, 0, one == place) for one in range(len(options)))
            answers.append((completion, ChoiceScores(() if job.task.generates else scores)))
        return answers

    return ask


def make_prompts(
    job: Job, backend: Backend, samples: Sequence[Sample], prepared: Prepared, num_fewshot: int
) -> list[Prompt]:
    """The prompt for each sample: as the task itself writes it, as a conversation, or as plain text.

    Each says how many of its first characters all prompts of its group have in common.
    """
    task = job.task
    if task.write_prompts is not None:
        if job.chat is not None:
            raise SpecError(f"task {task.name!r} writes its own prompts; drop --apply-chat-template")
        prompts = task.write_prompts(samples, num_fewshot, job.seed or 0)
    else:
        pairs = [(sample, shots_for(sample, prepared)) for sample in samples]
        if job.chat is None or backend.chat is None:
            prompts = [render_prompt(task, sample, shots) for sample, shots in pairs]
        else:
            prompts = [render_chat_prompt(task, sample, shots, backend.chat, job.chat) for sample, shots in pairs]
    texts: dict[str, list[str]] = {}
    for sample, prompt in zip(samples, prompts, strict=True):
        texts.setdefault(sample.group, []).append(prompt.text)
    shared = {group: num_shared(of_group) for group, of_group in texts.items()}
    return [replace(prompt, num_shared=shared[sample.group]) for sample, prompt in zip(samples, prompts, strict=True)]


def shots_for(sample: Sample, prepared: Prepared) -> Sequence[Sample]:
    """The shots of the sample's group; raises DataError where there are some, but none for this group."""
    if prepared.shots and sample.group not in prepared.shots:
        raise DataError(f"sample {sample.id!r}: group {sample.group!r} has too few samples to draw shots from")
    return prepared.shots.get(sample.group, ())


def make_record(job: Job, doc_id: int, prompt: Prompt, completion: Completion | None, scores: ChoiceScores) -> Record:
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
        choice_scores=scores.options,
        choice_correct=choices_correct(scores.options, prompt.continuations, sample.gold),
        answer_mass=scores.answer_mass,
        top_token=scores.top_token,
        top_options=scores.top_options,
    )


def chunks(prompts: Sequence[Prompt], groups: Sequence[str]) -> Iterator[list[int]]:
    """Indices of `prompts` in chunks, longest first: one that is too long shows at the start and not hours later.

    Prompts of one group, which begin alike, stay together.
    """
    longest: dict[str, int] = {}
    for prompt, group in zip(prompts, groups, strict=True):
        longest[group] = max(longest.get(group, 0), len(prompt.text))
    order = sorted(
        range(len(prompts)),
        key=lambda index: (-longest[groups[index]], groups[index], -len(prompts[index].text), index),
    )
    for start in range(0, len(order), CHUNK):
        yield order[start : start + CHUNK]


def chat_block(job: Job, backend: Backend) -> dict[str, Any] | None:
    """How prompts became conversations, with the hash of the model's template; None where they did not."""
    if job.chat is None or backend.chat is None:
        return None
    return {**asdict(job.chat), "template_hash": backend.chat.hash}


def job_key(job: Job, backend: Backend, spec: Spec, tuned: str | None) -> str:
    """Hash of everything that changes a job's records: equal keys mean that finished work can be taken over.

    `tuned` is the hash of the soft prompt or adapter.
    """
    return _hash(
        _common_parts(job, backend)
        | {
            "records": 2,  # to be raised when parsing, rows or the records' schema change
            "engine": spec.engine,
            "eval_batch_size": spec.eval_batch_size,
            "shots": samples_hash(job.data.shots),
            "test": samples_hash(job.test),
            "method": job.spec.model_dump(mode="json", exclude={"checkpoints", "soft_prompt"}),
            "checkpoint": job.checkpoint,
            "pmi": job.pmi,
            "tuned": tuned,
        }
    )


def tuning_key(job: Job, backend: Backend) -> str:
    """Hash of everything that changes what is tuned. Checkpoints do not: where one is missing, tuning is done again."""
    method = tuning_settings(job)
    together = {"tuned_with": job.tuned_with} if job.tuned_with else {}
    return _hash(_common_parts(job, backend) | {"tuning": 1, "method": method} | together)


def tuning_settings(job: Job) -> dict[str, Any]:
    """The settings of the job's method that change what is tuned."""
    return job.spec.model_dump(mode="json", exclude={"checkpoints", "options"})


def _common_parts(job: Job, backend: Backend) -> dict[str, Any]:
    info = backend.engine.info
    deterministic = {} if info.num_threads is None else {"deterministic": info.num_threads}
    return deterministic | {
        "model": info.fingerprint,
        "name": info.name,
        "dtype": info.dtype,
        "device": info.device,
        "template": job.task.template_hash,
        "chat": chat_block(job, backend),
        "tune": samples_hash(job.data.tune),
        "seed": job.seed,
    }


def _hash(parts: Mapping[str, Any]) -> str:
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
    try:
        # The kernel's own high-water mark: rusage begins with that of the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit if resource else 0


def read_cost(path: Path) -> dict[str, Any]:
    """What the chunks already done cost; zeros where the file is missing or damaged, as no result hangs on it."""
    names = ("evaluation_seconds", "evaluation_tokens", "evaluation_flops", "evaluation_peak_memory_bytes")
    try:
        value = load_json(read_text(path))
        return {name: max(0, value[name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return dict.fromkeys(names, 0)
