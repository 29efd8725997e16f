"""Tunes a soft prompt on a frozen model until it follows a benchmark's answer format (arXiv 2606.12117).

The recipe (initialisation, optimizer, schedule) is softbench's own: docs/learning_rate.md tells how it was chosen.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from softbench.errors import TuningError
from softbench.models import LoadedModel
from softbench.rows import check_length, encode, encode_pairs, lay_out, logits_at, target_places
from softbench.types import OnStep, Prompt, SoftPrompt, TuneResult, TuneSettings

MAX_GRADIENT_NORM = 1.0


def tune(
    model: LoadedModel, prompts: Sequence[Prompt], init_text: str, settings: TuneSettings, seed: int, on_step: OnStep
) -> TuneResult:
    """Learn `num_virtual_tokens` vectors that make `model` answer `prompts` with their targets and then stop.

    The loss is the cross-entropy of the target's tokens, closed by EOS, averaged over the tokens of a batch. The model
    does not change. Raises TuningError at a loss that is not finite, PromptTooLong where a sample does not fit.
    """
    generator = torch.Generator().manual_seed(seed)
    examples = encode_examples(model, prompts, settings.num_virtual_tokens)
    vectors = initial_vectors(model, init_text, settings, generator).requires_grad_()
    peak_rate = settings.learning_rate * model.embedding_rms
    optimizer = torch.optim.Adam([vectors], lr=peak_rate)
    losses: list[float] = []
    num_tokens = 0
    for step, batch in enumerate(_batches(examples, settings, generator)):
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * rate_factor(step, settings.steps, settings.warmup_steps)
        loss = target_loss(model, vectors, batch)
        if not torch.isfinite(loss):
            raise TuningError(
                f"tuning step {step + 1} of {settings.steps} met a loss of {loss.item()}; try a lower --learning-rate "
                f"than {settings.learning_rate} or --dtype float32"
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([vectors], MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.item())
        num_tokens += sum(len(context) + len(target) for context, target in batch)
        on_step(losses[-1])
    tuned = vectors.detach().cpu().numpy().astype(np.float32)
    num_samples = settings.steps * settings.batch_size
    return TuneResult(SoftPrompt(tuned, {}), tuple(losses), num_samples, num_tokens)


Example = tuple[list[int], list[int]]
"""Token ids of a prompt, and of its target with EOS."""


def encode_examples(model: LoadedModel, prompts: Sequence[Prompt], num_virtual_tokens: int) -> list[Example]:
    """Token ids of prompts and targets, each target closed by EOS. Raises PromptTooLong where one does not fit."""
    pairs = encode_pairs(model, [(prompt.text, prompt.target) for prompt in prompts])
    for prompt, (context, target) in zip(prompts, pairs, strict=True):
        check_length(model, prompt.sample_id, len(context), num_virtual_tokens, len(target) + 1)
    return [(context, [*target, model.eos_ids[0]]) for context, target in pairs]


def target_loss(model: LoadedModel, vectors: Tensor, examples: Sequence[Example]) -> Tensor:
    """Mean cross-entropy (nats a token) of the examples' targets with `vectors` (num_virtual_tokens, hidden) before."""
    batch = lay_out(model, [context + target for context, target in examples], vectors, padding="right")
    spans = [(len(context), len(context) + len(target)) for context, target in examples]
    rows, columns = target_places(batch, spans)
    logits, _ = logits_at(model, rows, columns, inputs_embeds=batch.embeds, use_cache=False)
    wanted = torch.tensor([token for _, target in examples for token in target], device=logits.device)
    return torch.nn.functional.cross_entropy(logits, wanted)


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


def _batches(
    examples: Sequence[Example], settings: TuneSettings, generator: torch.Generator
) -> Iterator[list[Example]]:
    """`steps` batches, from one random order of all examples after another."""
    queue: list[int] = []
    for _ in range(settings.steps):
        while len(queue) < settings.batch_size:
            queue += torch.randperm(len(examples), generator=generator).tolist()
        yield [examples[index] for index in queue[: settings.batch_size]]
        del queue[: settings.batch_size]
