"""Finished runs made up for tests of what reads them."""

import random
from collections.abc import Sequence

from softbench.runs import FinishedJob
from softbench.types import ChoiceScore, Completion, Prompt, Record, Sample, Status

METHODS = ("zero_shot", "few_shot", "soft_prompt")


def finished_job(
    model: str,
    task: str,
    label: str,
    following: float,
    knowing: float,
    count: int = 40,
    said: str = "",
    words: int = 0,
    checkpoint: int | None = None,
) -> FinishedJob:
    """A job whose completions are in the form, and right, at these rates; the same names give the same records.

    `said` stands in prompts, completions and options; `words` made-up words make up a question, a quarter of them a
    completion.
    """
    draw = random.Random(f"{model} {task} {label} {checkpoint}")
    records = [
        _record(
            draw, place, label, following, knowing, said, made_up(random.Random(f"{task} {place}"), words), words // 4
        )
        for place in range(count)
    ]
    cost = {"evaluation_seconds": 2.0, "evaluation_tokens": 900, "evaluation_flops": 10**11}
    if label.startswith("soft_prompt"):
        steps = 80 if checkpoint is None else checkpoint
        cost |= {"tuning_seconds": 9.0, "tuning_steps": steps, "tuning_samples": 8 * steps, "trainable_share": 2e-5}
    return FinishedJob(
        model, task, label, {"formulation": "mcf"}, {"cost": cost, "checkpoint": checkpoint}, tuple(records)
    )


def made_up(draw: random.Random, count: int) -> str:
    """Words of syllables, some far commoner than others, as in a language."""
    syllables = ("ka", "lo", "mi", "ter", "san", "dor", "el", "vi", "ran", "qu", "ost", "ine", "bu", "gre", "ph", "az")
    return "".join(
        " " + "".join(syllables[min(15, int(draw.expovariate(0.25)))] for _ in range(draw.randint(1, 4)))
        for _ in range(count)
    )


def _record(
    draw: random.Random,
    place: int,
    label: str,
    following: float,
    knowing: float,
    said: str,
    question: str,
    num_words: int,
) -> Record:
    follows, knows = draw.random() < following, draw.random() < knowing
    options = (f"yes{said}", f"no{said}")
    answer = "A" if knows else "B"
    spoken = made_up(draw, num_words)
    shots = made_up(random.Random(label), 400) if question and label == "few_shot" else ""
    sample = Sample(f"{place}", {}, ("A",), options, 0)
    return Record(
        doc_id=place,
        sample=sample,
        method=label,
        seed=0,
        prompt=Prompt(sample.id, f"{shots}Question {place}{said}{question}\nAnswer:", " (A).", (" A", " B")),
        completion=Completion((f" ({answer})." if follows else f" {answer}") + said + spoken, "stop", 12, 4),
        status=Status.OK if follows else Status.NO_ANSWER,
        answer=answer if follows else None,
        correct=follows and knows,
        lenient_answer=answer,
        lenient_correct=knows,
        choice_scores=tuple(ChoiceScore(-1.0 - (one == answer), 1, False) for one in ("B", "A")),
        choice_correct={"raw": knows},
    )


def finished_runs(
    models: Sequence[str], tasks: Sequence[str], count: int = 40, said: str = "", words: int = 0
) -> list[list[FinishedJob]]:
    """A run for each model: every task by METHODS, later models knowing more, the soft prompt bringing out the most."""
    form = dict(zip(METHODS, (0.1, 0.7, 0.98), strict=True))
    return [
        [
            finished_job(
                model, task, label, form[label], 0.3 + 0.5 * place / max(1, len(models) - 1), count, said, words
            )
            for task in tasks
            for label in METHODS
        ]
        for place, model in enumerate(models)
    ]
