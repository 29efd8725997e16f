"""A stand-in for a language model: deterministic, instant, without torch. For tests and documentation.

It knows a fixed share of all answers and follows the answer format ever better from bare prompt to shots to soft
prompt, so that a run over it looks like a run over a real base model.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from softbench.types import (
    Adapter,
    Checkpoint,
    ChoiceScore,
    ChoiceScores,
    Completion,
    Keeper,
    LoraSettings,
    Message,
    ModelInfo,
    OnStep,
    Prompt,
    SoftPrompt,
    TuneFailure,
    TuneRequest,
    TuneResult,
)

KNOWS = 0.7
FOLLOWS_BARE, FOLLOWS_SHOTS, FOLLOWS_SOFT_PROMPT = 0.05, 0.6, 0.97
FAKE_STEPS = 20
"""Tuning steps after which a fake soft prompt is whole."""
_NEXT_DIGIT = str.maketrans("0123456789", "1234567890")

INFO = ModelInfo(
    name="fake",
    source="fake",
    fingerprint="fake",
    revision=None,
    dtype="float32",
    device="cpu",
    num_parameters=1000,
    num_body_parameters=800,
    hidden_size=8,
    vocab_size=25,
    max_length=1 << 30,
)


class FakeEngine:
    """An Engine whose every answer is a hash of the sample's id."""

    def __init__(self, info: ModelInfo = INFO) -> None:
        self._info = info
        self._tokens_read = 0

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        return self._info

    @property
    def tokens_read(self) -> int:
        """Words read and written so far."""
        return self._tokens_read

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt; see Engine.generate."""
        return [self._complete(prompt, soft_prompt) for prompt in prompts]

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Give the continuation that is the target, where it is known, the best score; see Engine.score_choices."""
        return [self._score(prompt) for prompt in prompts]

    def _score(self, prompt: Prompt) -> ChoiceScores:
        favourite = self._favourite(prompt)
        options = tuple(
            ChoiceScore(-1.0 - 0.1 * place - 5.0 * (continuation != favourite), 1, False)
            for place, continuation in enumerate(prompt.continuations)
        )
        if len(options) < 2:
            return ChoiceScores(options)
        top = prompt.continuations.index(favourite) if favourite in prompt.continuations else 0
        return ChoiceScores(options, 0.9, prompt.continuations[top], (top,))

    def _complete(self, prompt: Prompt, soft_prompt: SoftPrompt | None) -> Completion:
        shots = prompt.text.count("\n\n") > 1
        follows = FOLLOWS_SHOTS if shots else FOLLOWS_BARE
        if soft_prompt is not None:
            length = min(1.0, float(np.abs(soft_prompt.vectors).mean()))  # a whole one's is about 0.8
            follows += (FOLLOWS_SOFT_PROMPT - follows) * min(1.0, 2 * length)
        in_form = _share(prompt.sample_id, "form") < follows
        text = self._favourite(prompt) if in_form else " I would say it depends"
        words = len(prompt.text.split())
        self._tokens_read += words + len(text.split())
        return Completion(text, "eos" if in_form else "stop", words, len(text.split()))

    def _favourite(self, prompt: Prompt) -> str:
        """The target where it is known; else another option, or the target with its digits moved on."""
        if _share(prompt.sample_id, "knows") < KNOWS:
            return prompt.target
        others = [continuation for continuation in prompt.continuations if continuation != prompt.target]
        return others[0] if others else prompt.target.translate(_NEXT_DIGIT)


class FakeChatTemplate:
    """A ChatTemplate that names each speaker."""

    hash = "fake"

    def render(self, messages: Sequence[Message], open_reply: bool) -> str:
        """One line of name and content a message."""
        turns = [f"<{message['role']}>{message['content']}</{message['role']}>" for message in messages]
        return "\n".join([*turns, "<assistant>"] if open_reply else turns)


def fake_tune(
    requests: Sequence[TuneRequest], on_step: OnStep, keeper: Keeper | None = None
) -> list[TuneResult | TuneFailure]:
    """A Tuner whose losses fall by schedule and whose vectors grow from 0, step by step, in a direction of the seed.

    FakeEngine follows formats the better the longer they are. It is done too soon for a state to be kept.
    """
    return [_fake_tune_one(request, on_step) for request in requests]


def _fake_tune_one(request: TuneRequest, on_step: OnStep) -> TuneResult:
    settings, until = request.settings, request.until
    direction = np.random.default_rng(request.seed).normal(size=(settings.num_virtual_tokens, INFO.hidden_size))
    words = sum(len(prompt.text.split()) for prompt in request.prompts)
    losses: list[float] = []
    seen: list[float] = []

    def now() -> Checkpoint:
        vectors = (direction * min(1.0, len(losses) / FAKE_STEPS)).astype(np.float32)
        return Checkpoint(vectors, len(losses) * settings.batch_size * words // len(request.prompts), 0.0)

    kept = {0: now()} if 0 in settings.checkpoints else {}
    for step in range(settings.steps):
        losses.append(4.0 / (1 + step))
        on_step(losses[-1])
        if len(losses) in settings.checkpoints:
            kept[len(losses)] = now()
        if until is not None and until(len(losses), SoftPrompt(now().vectors, {}), seen):
            break
    return TuneResult(
        soft_prompt=SoftPrompt(now().vectors, {}),
        losses=tuple(losses),
        num_samples=len(losses) * settings.batch_size,
        num_tokens=now().num_tokens,
        seconds=0.0,
        checkpoints=kept,
    )


def fake_tune_adapter(
    prompts: Sequence[Prompt], settings: LoraSettings, seed: int, on_step: OnStep, keeper: Keeper | None = None
) -> Adapter:
    """An AdapterTuner that learns nothing."""
    losses = tuple(4.0 / (1 + step) for step in range(settings.steps))
    for loss in losses:
        on_step(loss)
    weights = np.random.default_rng(seed).normal(size=(settings.rank, INFO.hidden_size)).astype(np.float32)
    return Adapter({"lora_A": weights}, settings, losses, len(losses) * settings.batch_size, 0.0)


def _share(sample_id: str, salt: str) -> float:
    """A number in [0, 1) that depends on the sample alone."""
    digest = hashlib.sha256(f"{salt}:{sample_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
