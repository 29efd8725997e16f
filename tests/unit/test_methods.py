import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from softbench.engines.fake import INFO, fake_tune
from softbench.errors import SoftPromptError, SpecError
from softbench.methods import METHODS, Materials, load_soft_prompt, save_soft_prompt
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prepared, Sample, SoftPrompt

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
    return Materials(DATA.tune, prompts, TASK.description, fake_tune, seed, lambda loss: None)


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
        with pytest.raises(SoftPromptError, match="was tuned for 'fake'"):
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
