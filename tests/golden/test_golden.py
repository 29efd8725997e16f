"""Losses and scores of tiny models, fixed to a relative 1e-5: whoever changes one sees it here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softbench.engines.transformers import TransformersEngine
from softbench.methods.tune import tune
from softbench.models import LoadedModel
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import TuneSettings
from tests.tiny import ARCHITECTURES

GOLDEN = Path(__file__).with_name("golden.json")
SETTINGS = TuneSettings(num_virtual_tokens=10, steps=8, batch_size=4, learning_rate=0.1, warmup_steps=3, init="text")


def measure(model: LoadedModel) -> dict[str, Any]:
    """Tuning losses, then log-likelihoods of the targets with and without the tuned prompt, and a completion."""
    task = get_task("capitals")
    data = load_data(task, None)
    prompts = [render_prompt(task, sample) for sample in data.tune]
    tuned = tune(model, prompts, task.description, SETTINGS, seed=0, on_step=lambda loss: None)
    engine = TransformersEngine(model, batch_size=4)
    asked = [render_prompt(task, sample, data.tune[:1]) for sample in data.test[:4]]
    scored = [type(prompt)(prompt.sample_id, prompt.text, prompt.target, (prompt.target,)) for prompt in asked]
    return {
        "losses": list(tuned.losses),
        "bare": [one.options[0].logprob for one in engine.score_choices(scored, None)],
        "tuned": [one.options[0].logprob for one in engine.score_choices(scored, tuned.soft_prompt)],
        "completion": engine.generate(asked[:1], tuned.soft_prompt, 12, ())[0].text,
    }


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_tuning_and_scores_are_what_they_were(architecture: str, tiny: Callable[[str], LoadedModel]) -> None:
    wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))[architecture]
    got = measure(tiny(architecture))
    for name in ("losses", "bare", "tuned"):
        assert got[name] == pytest.approx(wanted[name], rel=1e-5), name
    assert got["completion"] == wanted["completion"]
