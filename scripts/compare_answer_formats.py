"""Shows how much a form of answer costs a model that knows the answer: few-shot `capitals` under several templates.

    python -m scripts.compare_answer_formats MODEL

Uses the tuning and validation splits alone. docs/format_and_tokens.md has the figures.
"""

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import SHORT_TEXT
from softbench.engines.transformers import TransformersEngine
from softbench.models import load_model
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Sample

TEMPLATES = (
    "[[{answer}]]",
    "[[ {answer} ]]",
    "({answer})",
    "( {answer} )",
    "<< {answer} >>",
    "The answer is: {answer}!",
    "-> {answer} <-",
    "The capital is called {answer}.",
)
SEEDS = (0, 1, 2)
NUM_FEWSHOT = 5


def main() -> None:
    """Print a row for each template: zero-shot and few-shot format-following, few-shot accuracy a seed."""
    engine = TransformersEngine(load_model(sys.argv[1]), batch_size=32)
    capitals = get_task("capitals")
    data = load_data(capitals, None)
    pool = (*data.tune, *data.validation)
    print("| form | format-following, zero-shot | few-shot | accuracy, few-shot |\n| --- | --- | --- | --- |")
    for template in TEMPLATES:
        answer_format = AnswerFormat("compared", template, SHORT_TEXT)
        task = dataclasses.replace(capitals, answer_format=answer_format)
        following, accuracy = [], []
        for seed in (None, *SEEDS):
            shots = [] if seed is None else draw(pool, seed)
            asked = [sample for sample in pool if sample not in shots]
            prompts = [render_prompt(task, sample, shots) for sample in asked]
            said = [one.text for one in engine.generate(prompts, None, task.max_new_tokens, task.stop)]
            answers = [answer_format.parse(text) for text in said]
            right = [answer_format.is_right(a, sample.answers) for a, sample in zip(answers, asked, strict=True)]
            following.append(np.mean([answer is not None for answer in answers]))
            accuracy.append(np.mean(right))
        seeds = ", ".join(f"{value:.3f}" for value in accuracy[1:])
        print(f"| `{template}` | {following[0]:.3f} | {np.mean(following[1:]):.3f} | {seeds} |", flush=True)


def draw(pool: Sequence[Sample], seed: int) -> list[Sample]:
    """Shots, as few_shot draws them."""
    return [pool[index] for index in np.random.default_rng(seed).choice(len(pool), NUM_FEWSHOT, replace=False)]


if __name__ == "__main__":
    main()
