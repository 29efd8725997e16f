"""Tunes soft prompts on a frozen model until it follows a benchmark's answer format (arXiv 2606.12117).

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
from softbench.types import (
    Checkpoint,
    LossOn,
    OnStep,
    Prompt,
    SoftPrompt,
    TuneRequest,
    TuneResult,
    TuneSettings,
    Until,
)

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
    """Learn one soft prompt; see tune_together."""
    return tune_together(model, [TuneRequest(prompts, init_text, settings, seed, until)], on_step)[0]


def tune_together(model: LoadedModel, requests: Sequence[TuneRequest], on_step: OnStep) -> list[TuneResult]:
    """Learn vectors that make `model` answer each request's prompts with their targets and then stop.

    The loss is the cross-entropy of the target's tokens (or of those that carry no content), closed by EOS, averaged
    over the tokens of a batch. The model does not change. A request's tuning ends after its `settings.steps`, or when
    its `until` says so. Requests share passes over the model, each with its own batches, optimizer and clipping: what
    is learned is what each would learn alone, but for rounding. Raises TuningError at a loss that is not finite,
    PromptTooLong where a sample does not fit.
    """
    checkpointing = any(request.settings.gradient_checkpointing for request in requests)
    # A layer that is computed again can't fill a cache a second time.
    shares = can_share(model) and not checkpointing
    learners = [_Learner(model, request) for request in requests]
    longest = max(len(example.ids) for learner in learners for example in learner.examples)
    with checkpointed(model) if checkpointing else nullcontext(), attention_for_tuning(model, longest):
        while going := [learner for learner in learners if not learner.ended]:
            started = time.perf_counter()
            batches_of_all = [learner.next_batch() for learner in going]
            losses = backward(model, [learner.vectors for learner in going], batches_of_all, shares)
            for learner, loss in zip(going, losses, strict=True):
                learner.step(loss, len(going))
            # A pass's time is shared out evenly.
            seconds = (time.perf_counter() - started) / len(going)
            for learner, loss in zip(going, losses, strict=True):
                learner.note(seconds)
                on_step(loss)
                learner.look()
    return [learner.result() for learner in learners]


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt with its target and EOS, and the places in them of the tokens to be learned."""

    ids: list[int]
    learned: list[int]


class _Learner:
    """One soft prompt in the making: its vectors, their optimizer, the batches to come and what was seen so far."""

    def __init__(self, model: LoadedModel, request: TuneRequest) -> None:
        started = time.perf_counter()
        settings, generator = request.settings, torch.Generator().manual_seed(request.seed)
        self._request = request
        self.examples = encode_examples(model, request.prompts, settings.num_virtual_tokens, settings.loss_on)
        self.vectors = initial_vectors(model, request.init_text, settings, generator).requires_grad_()
        self._peak_rate = settings.learning_rate * model.embedding_rms
        self._optimizer = torch.optim.Adam([self.vectors], lr=self._peak_rate)
        self._batches = batches(self.examples, settings.steps, settings.batch_size, generator)
        self._losses: list[float] = []
        self._num_tokens = 0
        self._kept: dict[int, Checkpoint] = {}
        self._stopped = False
        self._seconds = 0.0
        self.note(time.perf_counter() - started)

    @property
    def ended(self) -> bool:
        """Whether there is no step to come."""
        return self._stopped or len(self._losses) == self._request.settings.steps

    def next_batch(self) -> list[Example]:
        """The batch of the next step; the gradient of the last one is gone."""
        self._optimizer.zero_grad()
        batch = next(self._batches)
        self._num_tokens += sum(len(example.ids) for example in batch)
        return batch

    def step(self, loss: float, together: int) -> None:
        """Change the vectors by their gradient."""
        settings, done = self._request.settings, len(self._losses)
        if not math.isfinite(loss):
            which = f" (seed {self._request.seed})" if together > 1 else ""
            raise TuningError(
                f"tuning step {done + 1} of {settings.steps}{which} met a loss of {loss}; try a lower --learning-rate "
                f"than {settings.learning_rate} or --dtype float32"
            )
        for group in self._optimizer.param_groups:
            group["lr"] = self._peak_rate * rate_factor(done, settings.steps, settings.warmup_steps)
        torch.nn.utils.clip_grad_norm_([self.vectors], MAX_GRADIENT_NORM)
        self._optimizer.step()
        self._losses.append(loss)

    def note(self, seconds: float) -> None:
        """Add time, and keep the vectors where this step is a checkpoint."""
        self._seconds += seconds
        if len(self._losses) in self._request.settings.checkpoints:
            self._kept[len(self._losses)] = Checkpoint(_as_array(self.vectors), self._num_tokens, self._seconds)

    def look(self) -> None:
        """Let the request say whether this was enough; its time counts as tuning."""
        if self._request.until is not None:
            started = time.perf_counter()
            self._stopped = self._request.until(len(self._losses), SoftPrompt(_as_array(self.vectors), {}))
            self._seconds += time.perf_counter() - started

    def result(self) -> TuneResult:
        """What was learned."""
        return TuneResult(
            soft_prompt=SoftPrompt(_as_array(self.vectors), {}),
            losses=tuple(self._losses),
            num_samples=len(self._losses) * self._request.settings.batch_size,
            num_tokens=self._num_tokens,
            seconds=self._seconds,
            checkpoints=self._kept,
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


def backward(
    model: LoadedModel, prompts: Sequence[Tensor | None], batches: Sequence[Sequence[Example]], shares: bool
) -> list[float]:
    """Mean loss (nats a token) of each batch behind its soft prompt; gradients are added to whatever asks for one.

    Long batches are read in parts, so that a long sample does not decide how much memory tuning takes.
    """
    counts = [sum(len(example.learned) for example in batch) for batch in batches]
    totals = [0.0] * len(batches)
    heights = [0 if prompt is None else len(prompt) for prompt in prompts]
    rows = [(owner, example) for owner, batch in enumerate(batches) for example in batch]
    # Soft prompts of one pass are as many vectors each.
    for part in (part for height in set(heights) for part in parts([row for row in rows if heights[row[0]] == height])):
        owners = [owner for owner, _ in part]
        present = sorted(set(owners))
        stacked = [prompt for prompt in (prompts[owner] for owner in present) if prompt is not None]
        losses = (shared_losses if shares else plain_losses)(
            model,
            torch.stack(stacked) if stacked else None,
            [example for _, example in part],
            [present.index(owner) for owner in owners],
        )
        shares_of_token = [1 / counts[owner] for owner, example in part for _ in example.learned]
        weighted = losses * torch.tensor(shares_of_token, device=losses.device)
        if not weighted.requires_grad:
            raise TuningError(
                f"{model.info.name} gives its inputs no gradient (quantised for inference alone?); tune a model that "
                "does, such as the one that it was made from"
            )
        weighted.sum().backward()
        of_examples = weighted.detach().cpu().split([len(example.learned) for _, example in part])
        for owner, of_example in zip(owners, of_examples, strict=True):
            totals[owner] += float(of_example.sum())
    return totals


def parts(rows: Sequence[tuple[int, Example]]) -> Iterator[list[tuple[int, Example]]]:
    """Examples with their soft prompts' numbers in parts of up to MAX_TOKENS tokens with padding, longest first."""
    ordered = sorted(rows, key=lambda row: -len(row[1].ids))
    start = 0
    while start < len(ordered):
        size = max(1, MAX_TOKENS // len(ordered[start][1].ids))
        yield ordered[start : start + size]
        start += size


def shared_losses(
    model: LoadedModel, vectors: Tensor | None, examples: Sequence[Example], owners: Sequence[int]
) -> Tensor:
    """`plain_losses`, reading what the examples begin with once a soft prompt: vectors, instruction and all."""
    first, most = examples[0].ids, min(example.learned[0] for example in examples) - 1
    same = 0
    while same < most and all(example.ids[same] == first[same] for example in examples):
        same += 1
    prefix = read_prefix(model, first[:same], vectors)
    if not prefix.length:
        return plain_losses(model, vectors, examples, owners)
    # Nothing is asked of the last token.
    nodes = nodes_of(model, [(example.ids[same:-1], ()) for example in examples], prefix.length)
    rows = [row for row, example in enumerate(examples) for _ in example.learned]
    columns = [place - 1 - same for example in examples for place in example.learned]
    places = (torch.tensor(one, device=model.device) for one in (rows, columns))
    return _cross_entropy(logits_behind(model, prefix, owners, nodes, *places), examples)


def plain_losses(
    model: LoadedModel, vectors: Tensor | None, examples: Sequence[Example], owners: Sequence[int]
) -> Tensor:
    """Cross-entropy (nats) of each token to be learned of `examples`, (tokens,), behind soft prompts.

    `vectors` (prompts, num_virtual_tokens, hidden), None with no soft prompt; `owners` says which of them stands
    before each example.
    """
    before = None if vectors is None else vectors[torch.tensor(owners, device=vectors.device)]
    batch = lay_out(model, [example.ids for example in examples], before, padding="right")
    rows, columns = target_places(batch, [example.learned for example in examples])
    logits, _ = logits_at(model, rows, columns, inputs_embeds=batch.embeds, use_cache=False)
    return _cross_entropy(logits, examples)


def _cross_entropy(logits: Tensor, examples: Sequence[Example]) -> Tensor:
    wanted = torch.tensor([one.ids[place] for one in examples for place in one.learned], device=logits.device)
    return torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")


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
