import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softbench.engines.fake import INFO, fake_tune, fake_tune_adapter
from softbench.errors import SoftPromptError, SpecError
from softbench.methods import METHODS, Materials, load_soft_prompt, save_soft_prompt
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prepared, Prompt, Sample, SoftPrompt, TuneRequest, TuneResult

TASK = get_task("capitals")
DATA = load_data(TASK, None)
SETTINGS = {
    "num_virtual_tokens": 4,
    "steps": 3,
    "batch_size": 2,
    "learning_rate": 0.1,
    "warmup_steps": 1,
    "init": "text",
}


def materials(seed: int = 0) -> Materials:
    prompts = [render_prompt(TASK, sample) for sample in DATA.tune]
    return Materials(
        tune_samples=DATA.tune,
        shot_samples=DATA.tune,
        tune_prompts=prompts,
        init_text=TASK.description,
        answer_format=TASK.answer_format.instruction(),
        info=INFO,
        tuner=fake_tune,
        adapter_tuner=fake_tune_adapter,
        format_following=lambda soft_prompt, places: 0.0,
        read_prompt=lambda folder: load_soft_prompt(folder, INFO),
        seed=seed,
        on_step=lambda loss: None,
    )


def test_zero_shot_puts_nothing_before_a_sample() -> None:
    assert METHODS["zero_shot"]().prepare(materials()) == Prepared()


def test_the_few_shot_seed_decides_the_shots() -> None:
    method = METHODS["few_shot"](num_fewshot=5)
    shots = method.prepare(materials()).shots
    assert len({shot.id for shot in shots[""]}) == 5
    assert all(shot in DATA.tune for shot in shots[""])
    assert method.prepare(materials()).shots == shots
    assert method.prepare(materials(seed=1)).shots != shots


def labelled(answers: str, groups: str = "") -> list[Sample]:
    return [
        Sample(str(place), {"q": str(place)}, (answer,), group=groups[place] if groups else "")
        for place, answer in enumerate(answers)
    ]


def test_fixed_shots_are_the_first_ones_and_need_no_seed() -> None:
    method = METHODS["few_shot"](num_fewshot=3, sampling="fixed")
    assert not method.uses_seed
    assert method.prepare(materials(seed=3)).shots[""] == DATA.tune[:3]


def test_balanced_shots_have_each_answer_as_often() -> None:
    pool = labelled("AAAAAAAAAAAABBBCC")
    for seed in range(5):
        method = METHODS["few_shot"](num_fewshot=6, sampling="balanced")
        drawn = method.prepare(dataclasses.replace(materials(seed), shot_samples=pool)).shots[""]
        answers = [shot.answers[0] for shot in drawn]
        assert sorted(answers) == ["A", "A", "B", "B", "C", "C"]
        assert len({shot.id for shot in drawn}) == 6
    drawn_again = method.prepare(dataclasses.replace(materials(4), shot_samples=pool)).shots[""]
    assert drawn_again == drawn


def test_each_group_has_shots_of_its_own() -> None:
    pool = labelled("ABABABAB", "xxxxyyyy")
    for sampling in ("random", "fixed", "balanced"):
        method = METHODS["few_shot"](num_fewshot=2, sampling=sampling)
        shots = method.prepare(dataclasses.replace(materials(), shot_samples=pool)).shots
        assert {group: {shot.group for shot in of_group} for group, of_group in shots.items()} == {
            "x": {"x"},
            "y": {"y"},
        }
    with pytest.raises(SpecError, match="num_fewshot is 5 and there are 4 samples to draw from in the largest group"):
        METHODS["few_shot"](num_fewshot=5).prepare(dataclasses.replace(materials(), shot_samples=pool))
    uneven = labelled("ABABAB", "xxxxyy")
    shots = METHODS["few_shot"](num_fewshot=3).prepare(dataclasses.replace(materials(), shot_samples=uneven)).shots
    assert set(shots) == {"x"}


def test_more_shots_than_tuning_samples_are_refused() -> None:
    with pytest.raises(SpecError, match="num_fewshot is 71 and there are 70 samples to draw from"):
        METHODS["few_shot"](num_fewshot=71).prepare(materials())


def test_soft_prompt_hands_settings_and_seed_to_the_tuner() -> None:
    prepared = METHODS["soft_prompt"](**SETTINGS).prepare(materials(seed=5))
    assert prepared.soft_prompt is not None
    assert prepared.tuning is not None
    assert prepared.soft_prompt.vectors.shape == (4, INFO.hidden_size)
    assert len(prepared.tuning.losses) == 3
    again = METHODS["soft_prompt"](**SETTINGS).prepare(materials(seed=5)).soft_prompt
    assert again is not None
    assert np.array_equal(again.vectors, prepared.soft_prompt.vectors)


def saved(folder: Path) -> SoftPrompt:
    vectors = np.random.default_rng(0).normal(size=(4, INFO.hidden_size)).astype(np.float32)
    return save_soft_prompt(folder, SoftPrompt(vectors, {}), INFO, {"task": "capitals", "losses": [2.0, 1.0]})


def test_a_soft_prompt_comes_back_bit_for_bit(tmp_path: Path) -> None:
    before = saved(tmp_path)
    after = load_soft_prompt(tmp_path, INFO)
    assert after.vectors.tobytes() == before.vectors.tobytes()
    assert after.vectors.dtype == np.float32
    assert after.card == before.card
    assert after.card["model_fingerprint"] == INFO.fingerprint
    assert after.card["losses"] == [2.0, 1.0]


def test_a_soft_prompt_of_another_model_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)

    for other in (dataclasses.replace(INFO, fingerprint="other"), dataclasses.replace(INFO, hidden_size=9)):
        with pytest.raises(SoftPromptError, match="was tuned for 'fake'|no vectors of hidden size 9"):
            load_soft_prompt(tmp_path, other)


def test_a_damaged_soft_prompt_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    weights, card = tmp_path / "soft_prompt.safetensors", tmp_path / "soft_prompt.json"
    whole, whole_card = weights.read_bytes(), card.read_text()
    for place in (0, 8, 40, len(whole) - 1):
        weights.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(SoftPromptError):
            load_soft_prompt(tmp_path, INFO)
    weights.write_bytes(whole[:-3])
    with pytest.raises(SoftPromptError, match="tune it again"):
        load_soft_prompt(tmp_path, INFO)
    weights.write_bytes(whole)
    for broken in ("", "[]", "{", json.dumps(json.loads(whole_card) | {"sha256": "0"})):
        card.write_text(broken)
        with pytest.raises(SoftPromptError):
            load_soft_prompt(tmp_path, INFO)
    with pytest.raises(SoftPromptError, match="no whole soft prompt"):
        load_soft_prompt(tmp_path / "none", INFO)


def test_the_majority_is_the_commonest_answer_of_the_tuning_split() -> None:
    pool = labelled("ABBAB")
    assert METHODS["majority"]().prepare(dataclasses.replace(materials(), tune_samples=pool)) == Prepared(constant="B")
    choices = [dataclasses.replace(one, choices=("x", "y", "z"), gold="ABC".index(one.answers[0])) for one in pool]
    assert METHODS["majority"]().prepare(dataclasses.replace(materials(), tune_samples=choices)).constant == 1
    assert not METHODS["majority"]().uses_seed


def test_early_stop_ends_when_the_form_is_learned() -> None:
    settings = SETTINGS | {"steps": 80, "early_stop": True}
    looked: list[int] = []

    def following(rates: list[float]) -> int:
        remaining = iter(rates)

        def look(soft_prompt: SoftPrompt, places: Sequence[int]) -> float:
            looked.append(len(places))
            return next(remaining)

        tuning = (
            METHODS["soft_prompt"](**settings).prepare(dataclasses.replace(materials(), format_following=look)).tuning
        )
        assert tuning is not None
        return len(tuning.losses)

    assert following([0.1, 0.96, 0.5, 0.96, 0.97, 1.0, 1.0, 1.0]) == 50
    assert following([0.1, 0.4, 0.3, 0.4, 0.2, 1.0]) == 50  # no new best in three looks
    assert following([0.0] * 8) == 80  # nothing learned yet is not saturated
    assert set(looked) == {len(DATA.tune) // 4}
    with pytest.raises(SpecError, match="early_stop watches completions, and this task asks for none"):
        METHODS["soft_prompt"](**settings).prepare(dataclasses.replace(materials(), format_following=None))


def test_early_stop_looks_at_samples_that_are_not_tuned_on() -> None:
    tuned_on: list[Prompt] = []
    watched: list[int] = []

    def tuner(requests: Sequence[TuneRequest], on_step: Any, keeper: Any = None) -> list[TuneResult]:
        [request] = requests
        tuned_on.extend(request.prompts)
        assert request.until is not None
        request.until(10, SoftPrompt(np.zeros((4, 8), np.float32), {}), [])
        return [TuneResult(SoftPrompt(np.zeros((4, 8), np.float32), {}), (1.0,), 2, 3, 0.0)]

    def look(soft_prompt: SoftPrompt, places: Sequence[int]) -> float:
        watched.extend(places)
        return 1.0

    made = dataclasses.replace(materials(), tuner=tuner, format_following=look)
    METHODS["soft_prompt"](**(SETTINGS | {"early_stop": True})).prepare(made)
    held_out = {made.tune_prompts[place].sample_id for place in watched}
    assert held_out
    assert held_out | {prompt.sample_id for prompt in tuned_on} == {prompt.sample_id for prompt in made.tune_prompts}
    assert not held_out & {prompt.sample_id for prompt in tuned_on}


def test_checkpoints_and_their_cost_come_back(tmp_path: Path) -> None:
    method = METHODS["soft_prompt"](**(SETTINGS | {"checkpoints": (0, 2)}))
    prepared = method.prepare(materials())
    assert method.load(tmp_path, INFO, None) is None
    method.save(tmp_path, prepared, INFO, {"task": "capitals"})
    for checkpoint, steps in ((0, 0), (2, 2), (None, 3)):
        loaded = method.load(tmp_path, INFO, checkpoint)
        assert loaded is not None
        assert loaded.soft_prompt is not None
        card = loaded.soft_prompt.card
        assert card["cost"]["tuning_steps"] == len(card["losses"]) == steps
        assert card["cost"]["tuning_samples"] == 2 * steps
        assert card["task"] == "capitals"
    assert method.load(tmp_path, INFO, 1) is None


def test_a_prompt_of_another_answer_format_is_refused(tmp_path: Path) -> None:
    save_soft_prompt(tmp_path, SoftPrompt(np.zeros((4, 8), np.float32), {}), INFO, {"answer_format": "Reply so."})
    method = METHODS["loaded_prompt"](soft_prompt=tmp_path)
    with pytest.raises(SoftPromptError, match="was tuned for answers in the form 'Reply so.', and this task's is"):
        method.prepare(materials())
    prepared = method.prepare(dataclasses.replace(materials(), answer_format="Reply so."))
    assert prepared.soft_prompt is not None
    assert prepared.soft_prompt.vectors.shape == (4, 8)


def test_an_adapter_comes_back_bit_for_bit(tmp_path: Path) -> None:
    method = METHODS["lora"](rank=2, alpha=4, steps=3, batch_size=2, learning_rate=1e-4, warmup_steps=1)
    made = method.prepare(materials(seed=4)).adapter
    assert made is not None
    method.save(tmp_path, Prepared(adapter=made), INFO, {"task": "capitals"})
    loaded = method.load(tmp_path, INFO, None)
    assert loaded is not None
    assert loaded.adapter is not None
    assert {name: one.tobytes() for name, one in loaded.adapter.weights.items()} == {
        name: one.tobytes() for name, one in made.weights.items()
    }
    assert (loaded.adapter.settings, loaded.adapter.losses) == (made.settings, made.losses)
    assert loaded.adapter.card["cost"]["trainable_parameters"] == 2 * 8
