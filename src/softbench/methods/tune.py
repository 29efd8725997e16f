"""Tunes soft prompts on a frozen model until it follows a benchmark's answer format (arXiv 2606.12117).

The recipe (initialisation, optimizer, schedule) is softbench's own: docs/learning_rate.md tells how it was chosen.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from softbench.errors import TuningError
from softbench.methods.learner import Arrays, Learner, identity_of, resume, state_of
from softbench.methods.losses import Room, backward, encode_examples
from softbench.models import LoadedModel
from softbench.rows import encode
from softbench.sharing import attention_for_tuning, can_share
from softbench.types import (
    Checkpoint,
    Keeper,
    OnStep,
    Prompt,
    SoftPrompt,
    TuneFailure,
    TuneRequest,
    TuneResult,
    TuneSettings,
    Until,
)

_VECTORS = "vectors"


def tune(
    model: LoadedModel,
    prompts: Sequence[Prompt],
    init_text: str,
    settings: TuneSettings,
    seed: int,
    on_step: OnStep,
    until: Until | None = None,
) -> TuneResult:
    """Learn one soft prompt; see tune_together. Raises TuningError where it comes to a number that is none."""
    [made] = tune_together(model, [TuneRequest(prompts, init_text, settings, seed, until)], on_step)
    if isinstance(made, TuneFailure):
        raise TuningError(made.why)
    return made


def tune_together(
    model: LoadedModel, requests: Sequence[TuneRequest], on_step: OnStep, keeper: Keeper | None = None
) -> list[TuneResult | TuneFailure]:
    """Learn vectors that make `model` answer each request's prompts with their targets and then stop.

    The loss is the cross-entropy of the target's tokens (or of those that carry no content), closed by EOS, averaged
    over the tokens of a batch. The model does not change. A request's tuning ends after its `settings.steps`, or when
    its `until` says so, or at a number that is none, its failure then standing in its place. Requests share passes over
    the model, each with its own batches, optimizer and clipping: what is learned is what each would learn alone, but
    for rounding. What `keeper` has of an earlier try is not done again. Raises PromptTooLong where a sample does not
    fit.
    """
    checkpointing = any(request.settings.gradient_checkpointing for request in requests)
    # A layer that is computed again can't fill a cache a second time.
    shares = can_share(model) and not checkpointing
    learners = [_learner(model, request) for request in requests]
    longest = max(len(example.ids) for learner in learners for example in learner.examples)
    with checkpointed(model) if checkpointing else nullcontext(), attention_for_tuning(model, longest):
        learn(model, learners, shares, on_step, keeper)
    return [_result(learner, request) for learner, request in zip(learners, requests, strict=True)]


def learn(
    model: LoadedModel, learners: Sequence[Learner], shares: bool, on_step: OnStep, keeper: Keeper | None
) -> None:
    """Take all steps that the learners have to take, one of each in a pass, from where `keeper` has them."""
    room, identity = Room(), "" if keeper is None else identity_of(learners)
    if keeper is not None:
        resume(learners, room, identity, keeper)
        for loss in (loss for learner in learners for loss in learner.losses):
            on_step(loss)
    is_small = all(learner.is_small for learner in learners)
    while going := [learner for learner in learners if not learner.ended]:
        started = time.perf_counter()
        batches = [learner.next_batch() for learner in going]
        losses = backward(model, [learner.prompt for learner in going], batches, shares, room, _clearing(going))
        for learner, loss in zip(going, losses, strict=True):
            learner.step(loss)
        # A pass's time is shared out evenly.
        seconds = (time.perf_counter() - started) / len(going)
        for learner, loss in zip(going, losses, strict=True):
            learner.note(seconds)
            on_step(loss)
            learner.look()
        # A small state is handed over after each step, for whatever ends the process early; a large one when it is due.
        if keeper is not None and (is_small or keeper.due or any(learner.failure for learner in going)):
            keeper.keep(state_of(learners, room, identity))


def _clearing(learners: Sequence[Learner]) -> Callable[[], None]:
    def clear() -> None:
        for learner in learners:
            learner.clear()

    return clear


def _learner(model: LoadedModel, request: TuneRequest) -> Learner:
    """What learns the vectors that `request` asks for."""
    started = time.perf_counter()
    settings, generator = request.settings, torch.Generator().manual_seed(request.seed)
    examples = encode_examples(model, request.prompts, settings.num_virtual_tokens, settings.loss_on)
    vectors = initial_vectors(model, request.init_text, settings, generator).requires_grad_()
    peak_rate = settings.learning_rate * model.embedding_rms

    def look(step: int, arrays: Arrays, seen: list[float]) -> bool:
        return request.until is not None and request.until(step, SoftPrompt(arrays[_VECTORS], {}), seen)

    return Learner(
        weights={_VECTORS: vectors},
        optimizer=torch.optim.Adam([vectors], lr=peak_rate),
        peak_rate=peak_rate,
        settings=settings,
        examples=examples,
        generator=generator,
        prompt=vectors,
        look=look if request.until is not None else None,
        seconds=time.perf_counter() - started,
    )


def _result(learner: Learner, request: TuneRequest) -> TuneResult | TuneFailure:
    """What was learned, or why nothing was."""
    if learner.failure is not None:
        return TuneFailure(learner.failure)
    return TuneResult(
        soft_prompt=SoftPrompt(learner.arrays()[_VECTORS], {}),
        losses=tuple(learner.losses),
        num_samples=len(learner.losses) * request.settings.batch_size,
        num_tokens=learner.num_tokens,
        seconds=learner.seconds,
        checkpoints={
            step: Checkpoint(kept.arrays[_VECTORS], kept.num_tokens, kept.seconds)
            for step, kept in learner.kept.items()
        },
        failed_tries=tuple(learner.failed_tries),
    )


@contextmanager
def checkpointed(model: LoadedModel) -> Iterator[None]:
    """While this lasts, each layer keeps its inputs alone and is computed again on the way back.

    Raises TuningError where the architecture does not offer it.
    """
    layers: list[Any] = [one for one in model.model.modules() if isinstance(one, GradientCheckpointingLayer)]
    if not layers:
        raise TuningError(f"{model.info.name} has no layers that could be computed again; drop gradient checkpointing")
    checkpoint = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    try:
        for layer in layers:
            # Layers do it in training mode alone. What is inside them stays as it is: no dropout.
            layer.gradient_checkpointing, layer._gradient_checkpointing_func, layer.training = True, checkpoint, True
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing, layer.training = False, False


def initial_vectors(model: LoadedModel, text: str, settings: TuneSettings, generator: torch.Generator) -> Tensor:
    """Starting vectors, float32 (num_virtual_tokens, hidden): the text's embeddings, or random rows of the vocabulary.

    A text shorter than the prompt is repeated, a longer one cut. Both start at the norm of real embeddings: N(0, 1),
    PEFT's default, is 7 to 58 times as long in SmolLM2 and Qwen, and learns far slower.
    """
    count = settings.num_virtual_tokens
    ids = encode(model, [text])[0] if settings.init == "text" else []
    if ids:
        chosen = torch.tensor([ids[index % len(ids)] for index in range(count)])
    else:
        num_rows = min(len(model.tokenizer), model.embed.weight.shape[0])
        chosen = torch.randint(num_rows, (count,), generator=generator)
    with torch.no_grad():
        vectors: Tensor = model.embed(chosen.to(model.device)).float().clone()
    return vectors
