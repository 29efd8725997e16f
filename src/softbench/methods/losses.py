"""The loss of tuning and its gradient: cross-entropy of targets' tokens, read in parts that memory has room for."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softbench.errors import ModelError, TuningError
from softbench.memory import free_memory, is_out_of_memory
from softbench.models import LoadedModel
from softbench.rows import check_length, encode_pairs, lay_out, logits_at, target_places, token_spans
from softbench.sharing import logits_behind, nodes_of, read_prefix
from softbench.types import LossOn, Prompt

# Tokens, padding among them, that one pass may hold.
MAX_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt with its target and EOS, and the places in them of the tokens to be learned."""

    ids: list[int]
    learned: list[int]


@dataclass
class Room:
    """How many tokens, padding among them, one pass of a tuning may hold: fewer once memory did not suffice."""

    max_tokens: int = MAX_TOKENS


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
    model: LoadedModel,
    prompts: Sequence[Tensor | None],
    batches: Sequence[Sequence[Example]],
    shares: bool,
    room: Room,
    clear: Callable[[], None],
) -> list[float]:
    """Mean loss (nats a token) of each batch behind its soft prompt; gradients are added to whatever asks for one.

    Long batches are read in parts, so that a long sample does not decide how much memory tuning takes. Where a part is
    too large for memory, `clear` makes gradients nought, and all is read again in smaller ones. Raises ModelError where
    a single sample is too large.
    """
    rows = [(owner, example) for owner, batch in enumerate(batches) for example in batch]
    heights = [0 if prompt is None else len(prompt) for prompt in prompts]
    while True:
        # Soft prompts of one pass are as many vectors each.
        cut = [
            part
            for height in dict.fromkeys(heights)
            for part in parts([row for row in rows if heights[row[0]] == height], room.max_tokens)
        ]
        try:
            return _backward_of_parts(model, prompts, batches, shares, cut)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if max(map(len, cut)) == 1:
                raise ModelError(
                    f"{model.info.name}: memory does not suffice to tune on a single sample; try "
                    "--gradient-checkpointing or --dtype bfloat16"
                ) from error
        room.max_tokens = max(len(part) * len(part[0][1].ids) for part in cut if len(part) > 1) // 2
        clear()
        free_memory()
        logging.getLogger("softbench").warning(
            "out of memory in tuning: going on with up to %d tokens a pass", room.max_tokens
        )


def _backward_of_parts(
    model: LoadedModel,
    prompts: Sequence[Tensor | None],
    batches: Sequence[Sequence[Example]],
    shares: bool,
    cut: Sequence[Sequence[tuple[int, Example]]],
) -> list[float]:
    counts = [sum(len(example.learned) for example in batch) for batch in batches]
    totals = [0.0] * len(batches)
    for part in cut:
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


def parts(rows: Sequence[tuple[int, Example]], max_tokens: int) -> Iterator[list[tuple[int, Example]]]:
    """Examples with their soft prompts' numbers in parts of up to `max_tokens` tokens with padding, longest first."""
    ordered = sorted(rows, key=lambda row: -len(row[1].ids))
    start = 0
    while start < len(ordered):
        size = max(1, max_tokens // len(ordered[start][1].ids))
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
