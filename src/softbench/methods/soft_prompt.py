"""Soft prompt: vectors tuned on the tuning split stand before the zero-shot prompt (arXiv 2606.12117)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from softbench.errors import SoftPromptError, SpecError, TuningError
from softbench.methods.base import Materials, Method, rate_block, tuning_cost
from softbench.methods.saved import is_saved, read_tensors, save_tensors, write_tensors
from softbench.types import (
    Labels,
    LossOn,
    ModelInfo,
    Options,
    Prepared,
    SoftPrompt,
    TuneFailure,
    TuneRequest,
    TuneSettings,
    Until,
)

STEM = "soft_prompt"
HELD_OUT, CHECK_EVERY, ENOUGH = 32, 10, 0.95


@dataclass(frozen=True)
class SoftPromptTuning(Method):
    """Tunes `num_virtual_tokens` vectors; `learning_rate` is in units of the RMS of the model's input embeddings.

    With `early_stop`, tuning ends when format-following on up to 32 held-out tuning samples, looked at every ten steps,
    has saturated: twice in a row at 95 %, or three times without a new best.
    """

    num_virtual_tokens: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    init: Literal["text", "vocab"]
    labels: Labels = "gold"
    loss_on: LossOn = "target"
    options: Options = "given"
    checkpoints: tuple[int, ...] = ()
    early_stop: bool = False
    gradient_checkpointing: bool = False
    retry_lower_rate: bool = False
    random_weights: bool = False

    @property
    def num_steps(self) -> int:  # type: ignore[override]  # a field of another name says it
        """Tuning steps that `prepare` takes, at most."""
        return self.steps

    def prepare(self, materials: Materials) -> Prepared:
        """Tune the vectors. Raises TuningError where that comes to a number that is none."""
        [tuning] = materials.tuner([self.request(materials)], materials.on_step)
        if isinstance(tuning, TuneFailure):
            raise TuningError(tuning.why)
        return Prepared(soft_prompt=tuning.soft_prompt, tuning=tuning)

    def request(self, materials: Materials) -> TuneRequest:
        """What is to be tuned, by itself or together with others. Raises SpecError where `early_stop` can't be had."""
        settings = TuneSettings(
            num_virtual_tokens=self.num_virtual_tokens,
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            init=self.init,
            loss_on=self.loss_on,
            checkpoints=tuple(step for step in self.checkpoints if step < self.steps),
            gradient_checkpointing=self.gradient_checkpointing,
            retry_lower_rate=self.retry_lower_rate,
        )
        prompts, until = materials.tune_prompts, None
        if self.early_stop:
            if materials.format_following is None:
                raise SpecError("early_stop watches completions, and this task asks for none (cf); drop it")
            count = min(HELD_OUT, len(prompts) // 4)
            order = [int(place) for place in np.random.default_rng(materials.seed).permutation(len(prompts))]
            if count:
                prompts, until = [prompts[place] for place in order[count:]], _saturated(materials, order[:count])
        return TuneRequest(prompts, materials.init_text, settings, materials.seed, until)

    def save(self, folder: Path, prepared: Prepared, info: ModelInfo, card: Mapping[str, Any]) -> None:
        """Write vectors and card, those of checkpoints to folders of their own."""
        tuning = prepared.tuning
        assert tuning is not None  # whoever saves has tuned
        card = {**card, **rate_block(self.learning_rate, tuning.failed_tries)}
        for step, kept in tuning.checkpoints.items():
            cost = self._cost(info, step, kept.num_tokens, kept.seconds)
            of_step = {**card, "losses": tuning.losses[:step], "cost": cost}
            save_soft_prompt(folder / f"step{step}", SoftPrompt(kept.vectors, {}), info, of_step)
        cost = self._cost(info, len(tuning.losses), tuning.num_tokens, tuning.seconds)
        save_soft_prompt(folder, tuning.soft_prompt, info, {**card, "losses": tuning.losses, "cost": cost})

    def load(self, folder: Path, info: ModelInfo, checkpoint: int | None) -> Prepared | None:
        """The saved vectors, if there are any."""
        place = folder if checkpoint is None else folder / f"step{checkpoint}"
        return Prepared(soft_prompt=load_soft_prompt(place, info)) if is_saved(place, STEM) else None

    def _cost(self, info: ModelInfo, steps: int, num_tokens: int, seconds: float) -> dict[str, Any]:
        trainable = self.num_virtual_tokens * info.hidden_size
        return tuning_cost(info, steps, self.batch_size, num_tokens, seconds, trainable)


def _saturated(materials: Materials, held_out: list[int]) -> Until:
    """Whether format-following on the held-out samples has saturated; looks every CHECK_EVERY steps."""

    def until(step: int, soft_prompt: SoftPrompt, seen: list[float]) -> bool:
        if step % CHECK_EVERY or materials.format_following is None:
            return False
        seen.append(materials.format_following(soft_prompt, held_out))
        enough = len(seen) > 1 and min(seen[-2:]) >= ENOUGH
        stalled = len(seen) > 3 and 0 < max(seen[-3:]) <= max(seen[:-3])
        return enough or stalled

    return until


@dataclass(frozen=True)
class LoadedPrompt(Method):
    """A soft prompt tuned before, perhaps on another task of the same answer format: what it gains is form."""

    soft_prompt: Path
    options: Options = "given"

    def prepare(self, materials: Materials) -> Prepared:
        """Read it. Raises SoftPromptError where it was tuned for another model or another answer format."""
        found = materials.read_prompt(self.soft_prompt)
        form = found.card.get("answer_format")
        if form not in (None, materials.answer_format):
            raise SoftPromptError(
                f"the soft prompt in {str(self.soft_prompt)!r} was tuned for answers in the form {form!r}, and this "
                f"task's is {materials.answer_format!r}; give one of the same form"
            )
        return Prepared(soft_prompt=found)


def save_soft_prompt(folder: Path, soft_prompt: SoftPrompt, info: ModelInfo, card: Mapping[str, Any]) -> SoftPrompt:
    """Write vectors and card to `folder` and return the soft prompt with its full card.

    The card names the model (fingerprint included), so that load_soft_prompt can refuse another one, and the hash of
    the vectors.
    """
    vectors = soft_prompt.vectors
    shape = {"num_virtual_tokens": len(vectors), "holds_bos": soft_prompt.holds_bos}
    whole = save_tensors(folder, STEM, {STEM: vectors}, info, {**shape, **card})
    return SoftPrompt(vectors, whole, soft_prompt.holds_bos)


def write_soft_prompt(folder: Path, soft_prompt: SoftPrompt) -> None:
    """Write a soft prompt that came with its full card to another folder. Raises SoftPromptError where it has none."""
    if "model_fingerprint" not in soft_prompt.card:
        raise SoftPromptError("a soft prompt without a card of softbench came; give the folder that it lies in")
    write_tensors(folder, STEM, {STEM: soft_prompt.vectors}, soft_prompt.card)


def load_soft_prompt(folder: Path, info: ModelInfo) -> SoftPrompt:
    """Read the soft prompt in `folder`. Raises SoftPromptError where it is damaged or made for another model."""
    tensors, card = read_tensors(folder, STEM, info)
    vectors = tensors.get(STEM)
    if vectors is None or vectors.ndim != 2 or vectors.shape[1] != info.hidden_size:
        raise SoftPromptError(
            f"the soft prompt in {str(folder)!r} has no vectors of hidden size {info.hidden_size}; tune it again"
        )
    return SoftPrompt(vectors, card, holds_bos=card.get("holds_bos") is True)
