"""What a report says, before it is drawn: questions in order, each with its answer in words, figures and tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from softbench.errors import SpecError
from softbench.report.curve import TaskCurve, curves
from softbench.report.plain import plain
from softbench.report.rank import Ranking, rank
from softbench.report.sheets import Cell, Sheet
from softbench.runs import FinishedJob
from softbench.stats.compare import mean_difference
from softbench.stats.estimate import (
    choice_accuracy,
    format_following,
    lenient_accuracy,
    macro_average,
    right,
    score,
    share,
)
from softbench.types import Estimate, Record

Run = Sequence[FinishedJob]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing of a figure: its heading and its data, tidy rows with shares in percent."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels of one `kind` (see figures.KINDS), the words that stand in for them, and the table behind them."""

    name: str
    kind: str
    title: str
    description: str
    panels: Sequence[Panel]
    sheet: Sheet


@dataclass(frozen=True, slots=True)
class Section:
    """A question, what the runs say to it in a few sentences, and the figures that show it."""

    name: str
    question: str
    answer: Sequence[str]
    figures: Sequence[Figure] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """A report's sections, and which models, tasks and methods it is about."""

    models: Sequence[str]
    tasks: Sequence[str]
    methods: Sequence[str]
    sections: Sequence[Section] = field(default_factory=tuple)


def tell(runs: Sequence[Run], posts: Sequence[Run] = (), mapping: Path | None = None, seed: int = 0) -> Story:
    """The story of one or several runs, each of one model; `posts` are those of their post-trained versions.

    Raises SpecError where two runs are of models with one name, or the post-trained ones don't fit.
    """
    names = [run[0].model for run in runs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SpecError(f"two runs are of a model named {min(twice)!r}; give each model one run")
    jobs = [job for run in runs for job in run]
    shown = [job for job in jobs if not is_checkpoint(job)]
    return Story(
        models=[plain(name) for name in names],
        tasks=[plain(one) for one in _order(job.task for job in shown)],
        methods=[plain(one) for one in _order(job.label for job in shown)],
        sections=(
            standing(shown, seed),
            hidden(shown),
            learning(jobs),
            ranking(runs, posts, mapping, seed),
            cost(shown),
        ),
    )


def story_dict(story: Story) -> dict[str, Any]:
    """The story for machines: each section's question, answer, and the figures' numbers."""
    return {
        "models": story.models,
        "tasks": story.tasks,
        "methods": story.methods,
        "sections": [
            {
                "name": section.name,
                "question": section.question,
                "answer": section.answer,
                "figures": {figure.name: [_row_dict(row) for row in figure.sheet.rows] for figure in section.figures},
            }
            for section in story.sections
        ],
    }


def _row_dict(row: Mapping[str, Cell]) -> Row:
    return {name: asdict(cell) if isinstance(cell, Estimate) else cell for name, cell in row.items()}


def is_checkpoint(job: FinishedJob) -> bool:
    """Whether the job evaluates vectors from the middle of a tuning."""
    return job.block.get("checkpoint") is not None


# Which model knows most, and how sure are we?


def standing(jobs: Sequence[FinishedJob], seed: int) -> Section:
    """Accuracy against format-following, and the best model with its lead over the next."""
    rows: list[dict[str, Cell]] = []
    panels: dict[str, list[Row]] = {}
    for job in jobs:
        metrics = {
            "score": score(job.outcomes),
            "format_following": format_following(job.outcomes),
            "lenient_accuracy": lenient_accuracy(job.outcomes),
            "choice_accuracy": choice_accuracy("raw")(job.outcomes),
        }
        names = {"task": plain(job.task), "model": plain(job.model), "method": plain(job.label)}
        rows.append({**names, "n": len(job.records), **metrics})
        row = {**names, **_percent("score", metrics["score"]), **_percent("form", metrics["format_following"])}
        panels.setdefault(names["task"], []).append(row)
    sheet = Sheet(
        {
            "task": "task", "model": "model", "method": "method", "n": "n", "score": "score %",
            "format_following": "format-following %", "lenient_accuracy": "lenient %", "choice_accuracy": "choice %",
        },
        rows,
    )  # fmt: skip
    generated = {task: rows for task, rows in panels.items() if any(row["form"] is not None for row in rows)}
    figures = [
        Figure(
            "accuracy",
            "dots",
            "Score of each model by each method",
            "A dot is the share of right answers, a line its 95 % interval; further right is better.",
            [Panel(task, of_task) for task, of_task in panels.items()],
            sheet,
        ),
        Figure(
            "format_and_accuracy",
            "plane",
            "Accuracy against format-following",
            "A point far to the left is held back by the form. None can lie above the diagonal: an answer counts in "
            "the right form alone.",
            [Panel(task, [row for row in rows if row["form"] is not None]) for task, rows in generated.items()],
            sheet,
        ),
    ]
    return Section(
        "standing",
        "Which model knows most, and how sure are we?",
        _leader(jobs, seed),
        [one for one in figures if one.panels],
    )


def _leader(jobs: Sequence[FinishedJob], seed: int) -> list[str]:
    models = _order(job.model for job in jobs)
    tasks_of: dict[str, list[str]] = {}
    for label in _order(job.label for job in jobs):
        having = [{job.task for job in jobs if (job.model, job.label) == (model, label)} for model in models]
        tasks_of[label] = [task for task in _order(job.task for job in jobs) if all(task in one for one in having)]
    method = headline([label for label, tasks in tasks_of.items() if tasks])
    if method is None:
        return ["No task was run on all models by one method, so that they can't be ranked."]
    shared = tasks_of[method]
    by_model = {model: {job.task: job for job in jobs if (job.model, job.label) == (model, method)} for model in models}
    means = {
        model: macro_average([score(of_model[task].outcomes) for task in shared])
        for model, of_model in by_model.items()
    }
    ordered = sorted(means, key=lambda model: -(means[model].value or 0.0))
    over = f"on {plain(shared[0])}" if len(shared) == 1 else f"on average over {len(shared)} tasks"
    best = ordered[0]
    lines = [f"By {plain(method)}, {plain(best)} scores {_shown(means[best])} {over}."]
    if len(ordered) > 1:
        second = ordered[1]
        pairs = [_paired(by_model[second][task], by_model[best][task]) for task in shared]
        if not all(pairs):
            return [*lines, f"{plain(second)} was asked other samples, so that the two can't be compared."]
        lead = mean_difference(pairs, np.random.default_rng(seed))
        clear = lead.low is not None and lead.low > 0
        lines.append(
            f"{plain(second)} comes next, {_points(lead)} points below, sample by sample: "
            + ("a difference that these samples can show." if clear else "too close for these samples to tell.")
        )
    return lines


def headline(labels: Sequence[str]) -> str | None:
    """The method by which models are set side by side: the soft prompt, or else the last one; a control if all are."""
    usual = _usual(labels)
    soft = (label for label in usual if label.partition(":")[0] == "soft_prompt")
    return next(soft, usual[-1] if usual else None)


CONTROLS = {"majority", "random_model", "labels=shuffled", "loss_on=format", "options=shuffled"}
"""Parts of a method's label by which it is there to check the others, rather than to score models."""


def _usual(labels: Sequence[str]) -> list[str]:
    """Those of `labels` that are no controls, or all where there are no others."""
    return [label for label in labels if CONTROLS.isdisjoint(label.split(":"))] or list(labels)


def _paired(before: FinishedJob, after: FinishedJob) -> list[tuple[bool, bool]]:
    """Whether each sample was right in both; empty where the two were asked different samples."""
    if [record.sample.id for record in before.outcomes] != [record.sample.id for record in after.outcomes]:
        return []
    return [(right(one), right(other)) for one, other in zip(before.outcomes, after.outcomes, strict=True)]


# How many points did the format hide?

PARTS: dict[str, Callable[[Record], bool]] = {
    "right, in the form": lambda record: bool(record.correct),
    "right, out of form": lambda record: not record.correct and bool(record.lenient_correct),
    "likeliest option right": lambda record: (
        not record.correct and not record.lenient_correct and record.choice_correct.get("raw", False)
    ),
}
"""What a sample shows of knowledge, each left out of those before it."""


def hidden(jobs: Sequence[FinishedJob]) -> Section:
    """Accuracy, and what the form kept out of it."""
    generating = [job for job in jobs if any(record.status is not None for record in job.outcomes)]
    rows: list[dict[str, Cell]] = []
    panels: dict[str, list[Row]] = {}
    for job in generating:
        names = {"task": plain(job.task), "model": plain(job.model), "method": plain(job.label)}
        parts = {name: share(map(holds, job.outcomes)) for name, holds in PARTS.items()}
        rows.append({**names, **parts})
        for name, estimate in parts.items():
            panels.setdefault(names["task"], []).append({**names, "part": name, **_percent("share", estimate)})
    if not rows:
        return Section("hidden", "How many points did the format hide?", ["No task of these runs generates text."])
    return Section(
        "hidden",
        "How many points did the format hide?",
        _hidden_points(generating),
        [
            Figure(
                "hidden",
                "bars",
                "Right answers, in the form and out of it",
                "The first part of a bar is what a benchmark reports. The second was answered right in another form; "
                "in the third only the log-likelihoods of the options point to the right one.",
                [Panel(task, of_task) for task, of_task in panels.items()],
                Sheet(
                    {"task": "task", "model": "model", "method": "method", **{name: f"{name} %" for name in PARTS}},
                    rows,
                ),
            )
        ],
    )


def _hidden_points(jobs: Sequence[FinishedJob]) -> list[str]:
    by_method: dict[str, list[tuple[FinishedJob, Estimate]]] = {}
    for job in jobs:
        by_method.setdefault(job.label, []).append((job, share(map(PARTS["right, out of form"], job.outcomes))))
    lines = []
    for method in _usual(list(by_method)):
        found = by_method[method]
        average = macro_average([estimate for _, estimate in found])
        if not average.value:
            count = sum(estimate.n for _, estimate in found)
            lines.append(f"{plain(method)}: none of {count:,} answers was right in another form{_up_to(average)}.")
            continue
        job, most = max(found, key=lambda one: one[1].value or 0.0)
        whole = "" if len(found) == 1 else f"; most on {plain(job.task)} from {plain(job.model)}, {_shown(most)}"
        lines.append(f"{plain(method)}: {_shown(average)} of the answers were right in another form{whole}.")
    return lines


def _up_to(estimate: Estimate) -> str:
    return "" if estimate.high is None else f" (interval up to {100 * estimate.high:.1f} %)"


# How fast is the format learned?


def learning(jobs: Sequence[FinishedJob]) -> Section:
    """Saturation curves of those soft prompts that have checkpoints."""
    question = "How fast is the format learned?"
    if not any(is_checkpoint(job) for job in jobs):
        return Section(
            "learning", question, ["These runs have no checkpoints: `softbench run --checkpoints 0,10,20,40`."]
        )
    found = curves(jobs)
    names = {"format_following": "format-following", "accuracy": "accuracy", "choice_accuracy_raw": "choice accuracy"}
    rows: list[dict[str, Cell]] = []
    panels: dict[str, list[Row]] = {}
    for one in found:
        labels = {"task": plain(one.task), "model": plain(one.model), "method": plain(one.method)}
        for place, (step, samples) in enumerate(zip(one.curve.steps, one.curve.samples, strict=True)):
            estimates = {name: one.curve.metrics[name][place] for name in names}
            rows.append({**labels, "step": step, "samples": samples, **estimates})
            for name, estimate in estimates.items():
                if estimate.value is not None:
                    row = {**labels, "step": step, "metric": names[name], **_percent("share", estimate)}
                    panels.setdefault(labels["task"], []).append(row)
    columns = {"task": "task", "model": "model", "method": "method", "step": "step", "samples": "samples"}
    return Section(
        "learning",
        question,
        [_saturation(found, name, names[name]) for name in ("format_following", "accuracy")],
        [
            Figure(
                "learning",
                "curves",
                "Scores along tuning",
                "Format-following and accuracy at each checkpoint; bands are 95 % intervals.",
                [Panel(task, of_task) for task, of_task in panels.items()],
                Sheet({**columns, **{name: f"{heading} %" for name, heading in names.items()}}, rows),
            )
        ],
    )


def _saturation(found: Sequence[TaskCurve], name: str, heading: str) -> str:
    steps = [(step, one) for one in found if (step := one.curve.saturation[name]) is not None]
    if not steps:
        return f"{heading.capitalize()} was not measured along these tunings."
    ends = [max(one.curve.steps) for _, one in steps]
    last = max(ends)
    before = [step for (step, _), end in zip(steps, ends, strict=True) if step < end]
    late = [one for (step, one), end in zip(steps, ends, strict=True) if step == end]
    if not before:
        return f"{heading.capitalize()} was still changing before the last step, {last}."
    saturated = f"{heading.capitalize()} had saturated by step {max(before)} of {last}"
    if len(steps) == 1:
        return f"{saturated}."
    if not late:
        return f"{saturated} on all {len(steps)} curves."
    named = f"{plain(late[0].task)} from {plain(late[0].model)}"
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return f"{saturated} on {len(before)} of {len(steps)} curves; on {named}{others} it was still changing."


# Do base scores predict post-trained ranks?


def ranking(runs: Sequence[Run], posts: Sequence[Run], mapping: Path | None, seed: int) -> Section:
    """Base scores by each method against post-trained scores."""
    question = "Do base scores predict how post-trained models rank?"
    if not posts:
        return Section(
            "ranking",
            question,
            ["No post-trained runs were given: name them with `--post OUT/<model>`, one for each base model."],
        )
    found = rank(runs, posts, mapping, "zero_shot", seed)
    rows: list[dict[str, Cell]] = []
    panels: dict[str, list[Row]] = {}
    for method, agreement in found.agreements.items():
        tau = agreement["kendall_tau"].estimate
        title = f"{plain(method)}: tau {_tau(tau)}"
        for place, (base, post) in enumerate(found.pairs):
            row: dict[str, Cell] = {
                "method": plain(method),
                "model": plain(base),
                "post": plain(post),
                "base_score": 100 * found.scores[method][place],
                "post_score": 100 * found.scores["post"][place],
            }
            rows.append(row)
            panels.setdefault(title, []).append(dict(row))
    columns = {
        "method": "method", "model": "base", "base_score": "base score %", "post": "post-trained",
        "post_score": "its score %",
    }  # fmt: skip
    return Section(
        "ranking",
        question,
        _agreement(found),
        [
            Figure(
                "ranking",
                "ranks",
                "Base score against post-trained score",
                "A point is a pair of models, each scored on one half of the samples. Where points rise from left to "
                "right, the base scores rank the post-trained models well.",
                [Panel(title, of_method) for title, of_method in panels.items()],
                Sheet(columns, rows),
            )
        ],
    )


def _agreement(found: Ranking) -> list[str]:
    taus = {method: of_method["kendall_tau"].estimate for method, of_method in found.agreements.items()}
    lines = [
        f"Kendall's tau over {len(found.pairs)} pairs of models: "
        + "; ".join(f"{plain(method)} {_tau(tau)}" for method, tau in taus.items())
        + "."
    ]
    for (one, other), difference in found.differences.items():
        if difference.low is not None and difference.high is not None and not difference.low <= 0 <= difference.high:
            better, worse = (other, one) if difference.low > 0 else (one, other)
            lines.append(f"{plain(better)} ranks them better than {plain(worse)} beyond what the samples leave open.")
    if len(lines) == 1 and found.differences:
        lines.append("Which method ranks them better, these samples leave open.")
    return lines


def _tau(tau: Estimate) -> str:
    if tau.value is None or tau.low is None or tau.high is None:
        return "unknown"
    return f"{tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]"


# What did it cost?


def cost(jobs: Sequence[FinishedJob]) -> Section:
    """Seconds, tokens, operations and memory of each method."""
    rows: list[dict[str, Cell]] = []
    panels: dict[str, list[Row]] = {}
    for job in jobs:
        spent = job.block["cost"]
        names = {"task": plain(job.task), "model": plain(job.model), "method": plain(job.label)}
        memory = spent.get("evaluation_peak_memory_bytes")
        asked = [record.completion.num_prompt_tokens for record in job.outcomes if record.completion is not None]
        flops = spent.get("tuning_flops", 0) + spent.get("evaluation_flops", 0)
        rows.append(
            {
                **names,
                "tuning_seconds": _number(spent.get("tuning_seconds")),
                "evaluation_seconds": _number(spent.get("evaluation_seconds")),
                "tuning_samples": spent.get("tuning_samples"),
                "prompt_tokens": float(np.mean(asked)) if asked else None,
                "tflops": flops / 1e12 if flops else None,
                "memory_gib": memory / 2**30 if memory else None,
                "trainable_share": _number(spent.get("trainable_share")),
            }
        )
        for phase in ("tuning", "evaluation"):
            row = {**names, "phase": phase, "seconds": float(spent.get(f"{phase}_seconds", 0.0))}
            panels.setdefault(names["task"], []).append(row)
    columns = {
        "task": "task", "model": "model", "method": "method", "tuning_seconds": "tuning s",
        "evaluation_seconds": "evaluation s", "tuning_samples": "samples tuned on",
        "prompt_tokens": "prompt tokens a sample", "tflops": "TFLOP", "memory_gib": "peak memory GiB",
        "trainable_share": "trainable share",
    }  # fmt: skip
    return Section(
        "cost",
        "What did it cost?",
        _cost_lines(rows),
        [
            Figure(
                "cost",
                "seconds",
                "Seconds of tuning and evaluation",
                "Wall time of the work when it was done; what a later run read back is counted as it was.",
                [Panel(task, of_task) for task, of_task in panels.items()],
                Sheet(columns, rows),
            )
        ],
    )


def _cost_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for method in _usual(_order(str(row["method"]) for row in rows)):
        of_method = [row for row in rows if row["method"] == method]
        tuning = sum(row["tuning_seconds"] or 0.0 for row in of_method)
        evaluation = sum(row["evaluation_seconds"] or 0.0 for row in of_method)
        tokens = [row["prompt_tokens"] for row in of_method if row["prompt_tokens"] is not None]
        tuned = f"{tuning:,.0f} s of tuning and " if tuning else ""
        prompts = f", with prompts of {np.mean(tokens):,.0f} tokens" if tokens else ""
        lines.append(f"{method}: {tuned}{evaluation:,.0f} s of evaluation in all{prompts}.")
    return lines


def _order(names: Any) -> list[str]:
    return list(dict.fromkeys(names))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _percent(name: str, estimate: Estimate) -> Row:
    """A share and the ends of its interval as columns of a drawing, in percent."""
    parts = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    return {name + end: None if value is None else 100 * value for end, value in parts.items()}


def _shown(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "an unknown share"
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _points(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "an unknown number of"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
