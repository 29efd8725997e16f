"""Tunes a soft prompt on a frozen model until it follows a benchmark's answer format (arXiv 2606.12117).

The recipe (initialisation, optimizer, schedule) is softbench's own: docs/learning_rate.md tells how it was chosen.
"""

import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from softbench.errors import TuningError
from softbench.models import LoadedModel
from softbench.rows import check_length, encode, encode_pairs, lay_out, logits_at, target_places, token_spans
from softbench.sharing import attention_for_tuning, can_share, logits_behind, nodes_of, read_prefix
from softbench.types import Checkpoint, LossOn, OnStep, Prompt, SoftPrompt, TuneResult, TuneSettings, Until

MAX_GRADIENT_NORM = 1.0
# Batches that are sorted by length together, and tokens, padding among them, that one pass may hold.
GROUPED, MAX_TOKENS = 8, 8192


def tune(
    model: LoadedModel,
    prompts: Sequence[Prompt],
    init_text: str,
    settings: TuneSettings,
    seed: int,
    on_step: OnStep,
    until: Until | None = None,
) -> TuneResult:
    """Learn `num_virtual_tokens` vectors that make `model` answer `prompts` with their targets and then stop.

    The loss is the cross-entropy of the target's tokens (or of those that carry no content), closed by EOS, averaged
    over the tokens of a batch. The model does not change. Tuning ends after `settings.steps`, or when `until` says so.
    Raises TuningError at a loss that is not finite, PromptTooLong where a sample does not fit.
    """
    started = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    examples = encode_examples(model, prompts, settings.num_virtual_tokens, settings.loss_on)
    # A layer that is computed again can't fill a cache a second time.
    shares = can_share(model) and not settings.gradient_checkpointing
    vectors = initial_vectors(model, init_text, settings, generator).requires_grad_()
    peak_rate = settings.learning_rate * model.embedding_rms
    optimizer = torch.optim.Adam([vectors], lr=peak_rate)
    losses: list[float] = []
    num_tokens = 0
    kept: dict[int, Checkpoint] = {}

    def keep() -> None:
        if len(losses) in settings.checkpoints:
            kept[len(losses)] = Checkpoint(_as_array(vectors), num_tokens, time.perf_counter() - started)

    keep()
    longest = max(len(example.ids) for example in examples)
    layers = checkpointed(model) if settings.gradient_checkpointing else nullcontext()
    with layers, attention_for_tuning(model, longest):
        for step, batch in enumerate(batches(examples, settings.steps, settings.batch_size, generator)):
            for group in optimizer.param_groups:
                group["lr"] = peak_rate * rate_factor(step, settings.steps, settings.warmup_steps)
            optimizer.zero_grad()
            loss = backward(model, vectors, batch, shares)
            if not math.isfinite(loss):
                raise TuningError(
                    f"tuning step {step + 1} of {settings.steps} met a loss of {loss}; try a lower --learning-rate "
                    f"than {settings.learning_rate} or --dtype float32"
                )
            torch.nn.utils.clip_grad_norm_([vectors], MAX_GRADIENT_NORM)
            optimizer.step()
            losses.append(loss)
            num_tokens += sum(len(example.ids) for example in batch)
            keep()
            on_step(losses[-1])
            if until is not None and until(len(losses), SoftPrompt(_as_array(vectors), {})):
                break
    return TuneResult(
        soft_prompt=SoftPrompt(_as_array(vectors), {}),
        losses=tuple(losses),
        num_samples=len(losses) * settings.batch_size,
        num_tokens=num_tokens,
        seconds=time.perf_counter() - started,
        checkpoints=kept,
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


def _as_array(vectors: Tensor) -> np.typing.NDArray[np.float32]:
    return vectors.detach().cpu().numpy().astype(np.float32, copy=True)


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt with its target and EOS, and the places in them of the tokens to be learned."""

    ids: list[int]
    learned: list[int]


def encode_examples(
    model: LoadedModel, prompts: Sequence[Prompt], num_virtual_tokens: int, loss_on: LossOn = "target"
) -> list[Example]:
    """Prompts as examples, each target closed by EOS. Raises PromptTooLong where one does not fit."""
    pairs = encode_pairs(model, [(prompt.text, prompt.target) for prompt in prompts])
    spans = token_spans(model, [prompt.text + prompt.target for prompt in prompts]) if loss_on == "format" else []
    examples = []
    for index, (prompt, (context, target)) in enumerate(zip(prompts, pairs, strict=True)):
        check_length(model, prompt.sample_id, len(context), num_virtual_tokens, len(target) + 1)
        ids = [*context, *target, model.eos_ids[0]]
        learned = list(range(len(context), len(ids)))
        if loss_on == "format":
            content = [(begin + len(prompt.text), end + len(prompt.text)) for begin, end in prompt.content]
            of_target = spans[index][len(spans[index]) - len(target) :]
            carries = [any(begin < stop and end > start for start, stop in content) for begin, end in of_target]
            learned = [place for place, inside in zip(learned, [*carries, False], strict=True) if not inside]
        examples.append(Example(ids, learned))
    return examples


def backward(model: LoadedModel, vectors: Tensor | None, batch: Sequence[Example], shares: bool) -> float:
    """Mean loss (nats a token) of a batch, its gradient added to whatever asks for one.

    A long batch is read in parts, so that a long sample does not decide how much memory tuning takes.
    """
    count = sum(len(example.learned) for example in batch)
    total = 0.0
    for part in parts(batch):
        share = sum(len(example.learned) for example in part) / count
        loss = (shared_loss if shares else target_loss)(model, vectors, part) * share
        loss.backward()
        total += loss.item()
    return total


def parts(batch: Sequence[Example]) -> Iterator[list[Example]]:
    """The batch in parts of up to MAX_TOKENS tokens with padding, longest examples first."""
    ordered = sorted(batch, key=lambda example: -len(example.ids))
    start = 0
    while start < len(ordered):
        size = max(1, MAX_TOKENS // len(ordered[start].ids))
        yield ordered[start : start + size]
        start += size


def shared_loss(model: LoadedModel, vectors: Tensor | None, examples: Sequence[Example]) -> Tensor:
    """`target_loss`, reading what the examples begin with once for all of them: vectors, instruction and all."""
    first, most = examples[0].ids, min(example.learned[0] for example in examples) - 1
    same = 0
    while same < most and all(example.ids[same] == first[same] for example in examples):
        same += 1
    prefix = read_prefix(model, first[:same], vectors)
    if not prefix.length:
        return target_loss(model, vectors, examples)
    # Nothing is asked of the last token.
    nodes = nodes_of(model, [(example.ids[same:-1], ()) for example in examples], prefix.length)
    rows = [row for row, example in enumerate(examples) for _ in example.learned]
    columns = [place - 1 - same for example in examples for place in example.learned]
    places = (torch.tensor(one, device=model.device) for one in (rows, columns))
    return _cross_entropy(logits_behind(model, prefix, nodes, *places), examples)


def target_loss(model: LoadedModel, vectors: Tensor | None, examples: Sequence[Example]) -> Tensor:
    """Mean cross-entropy (nats a token) of what is learned of `examples`, `vectors` (num_virtual_tokens, hidden) before
    each; with no vectors, those of the plain model."""
    batch = lay_out(model, [example.ids for example in examples], vectors, padding="right")
    rows, columns = target_places(batch, [example.learned for example in examples])
    logits, _ = logits_at(model, rows, columns, inputs_embeds=batch.embeds, use_cache=False)
    return _cross_entropy(logits, examples)


def _cross_entropy(logits: Tensor, examples: Sequence[Example]) -> Tensor:
    wanted = torch.tensor([one.ids[place] for one in examples for place in one.learned], device=logits.device)
    return torch.nn.functional.cross_entropy(logits.float(), wanted)


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


def rate_factor(step: int, steps: int, warmup_steps: int) -> float:
    """Share of the peak learning rate at `step` (from 0): up in a line over the warm-up, then down in a line to 0.

    The warm-up takes half of all steps at most.
    """
    warmup_steps = min(warmup_steps, steps // 2)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return (steps - step) / max(1, steps - warmup_steps)


def batches(
    examples: Sequence[Example], steps: int, batch_size: int, generator: torch.Generator
) -> Iterator[list[Example]]:
    """`steps` batches, from one random order of all examples after another.

    Up to GROUPED batches are sorted by length together, so that each needs little padding, and then shuffled.
    """
    for batch in itertools.islice(_index_batches(examples, batch_size, generator), steps):
        yield [examples[index] for index in batch]


def _index_batches(examples: Sequence[Example], batch_size: int, generator: torch.Generator) -> Iterator[list[int]]:
    carried: list[int] = []
    while True:
        order = torch.randperm(len(examples), generator=generator).tolist()
        if carried:  # what was left of the order before comes first
            missing = batch_size - len(carried)
            carried, order = carried + order[:missing], order[missing:]
            if len(carried) < batch_size:
                continue
            yield carried
        whole = len(order) - len(order) % batch_size
        carried = order[whole:]
        for start in range(0, whole, GROUPED * batch_size):
            end = min(start + GROUPED * batch_size, whole)
            window = sorted(order[start:end], key=lambda index: len(examples[index].ids))
            for place in torch.randperm(len(window) // batch_size, generator=generator).tolist():
                yield window[place * batch_size : (place + 1) * batch_size]
