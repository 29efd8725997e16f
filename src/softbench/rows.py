"""Rows of tokens as a model reads them: `bos | soft prompt | text`, padded, and logits only where they are wanted.

Tuning and evaluation share this module, so that a soft prompt is scored in exactly the layout that it was tuned in.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from softbench.errors import ModelError, PromptTooLong
from softbench.models import LoadedModel

NO_NUMBER = -1
"""What stands for the likeliest token where logits are no numbers."""
# Rows of a head's weight that are multiplied at once.
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded rows. `embeds` (batch, length, hidden); `mask` (batch, length), 0 at padding; `starts` (batch,): where
    each row's text begins, after padding, BOS and soft prompt."""

    embeds: Tensor
    mask: Tensor
    starts: Tensor

    @property
    def position_ids(self) -> Tensor:
        """(batch, length): padding takes no position, as absolute-position models would shift every token otherwise."""
        return (self.mask.cumsum(dim=1) - 1).clamp(min=0)


def encode(model: LoadedModel, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text without special tokens; BOS is added where the row is laid out, once."""
    encoded: list[list[int]] = model.tokenizer(list(texts), add_special_tokens=False).input_ids if texts else []
    return encoded


def token_spans(model: LoadedModel, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """The characters [begin, end) of each text that each of its tokens covers, tokenized as `encode` does.

    Raises ModelError where the tokenizer can't tell.
    """
    if not model.tokenizer.is_fast:
        raise ModelError(f"the tokenizer of {model.info.name!r} does not say which characters its tokens cover")
    encoded = model.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
    return [[(int(begin), int(end)) for begin, end in spans] for spans in encoded.offset_mapping]


def encode_contexts(model: LoadedModel, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts that something is to follow; never an empty row."""
    return [_with_start(model, context) for context in encode(model, texts)]


def encode_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """Context and continuation ids of each pair, tokenized together and parted at the first token that differs.

    A continuation may merge with the context's last characters into one token; that token then counts as continuation.
    """
    contexts = encode(model, [context for context, _ in pairs])
    wholes = encode(model, [context + continuation for context, continuation in pairs])
    parted = []
    for context, whole in zip(contexts, wholes, strict=True):
        same = 0
        while same < min(len(context), len(whole)) and context[same] == whole[same]:
            same += 1
        parted.append((_with_start(model, whole[:same]), whole[same:]))
    return parted


def _with_start(model: LoadedModel, context: list[int]) -> list[int]:
    """`context`, or where no token would stand before what follows it the end token, as after another document."""
    return context if context or model.bos_id is not None else [model.eos_ids[0]]


def check_length(model: LoadedModel, sample_id: str, num_text: int, num_virtual: int, num_new: int) -> None:
    """Raise PromptTooLong where text, soft prompt, BOS and new tokens do not fit the model's context together."""
    needed = num_text + num_virtual + num_new + (model.bos_id is not None)
    if needed > model.info.max_length:
        raise PromptTooLong(
            f"sample {sample_id!r} needs {needed} tokens ({num_text} text, {num_virtual} soft prompt, {num_new} answer)"
            f" and {model.info.name} takes {model.info.max_length}; use fewer shots or a model with a longer context"
        )


def lay_out(
    model: LoadedModel, rows: Sequence[Sequence[int]], soft_prompt: Tensor | None, padding: Literal["left", "right"]
) -> Batch:
    """Embed token rows with BOS and soft prompt before each, padded to one length.

    Left padding is for generation, where all rows must end together. Right padding is for scoring and tuning: a causal
    model can't see it, so that a row's logits need no mask at all. `soft_prompt` (num_virtual_tokens, hidden), or one a
    row (rows, num_virtual_tokens, hidden), keeps its gradient.
    """
    device = model.device
    bos = [] if model.bos_id is None else [model.bos_id]
    num_soft = 0 if soft_prompt is None else soft_prompt.shape[-2]
    num_before = len(bos) + num_soft
    longest = max(len(row) for row in rows)
    width = num_before + longest
    ids = torch.full((len(rows), width), model.eos_ids[0])
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    starts = torch.empty(len(rows), dtype=torch.long)
    for index, row in enumerate(rows):
        first = longest - len(row) if padding == "left" else 0
        starts[index] = first + num_before
        ids[index, first : first + len(bos)] = torch.tensor(bos, dtype=torch.long)
        ids[index, first + num_before : first + num_before + len(row)] = torch.tensor(row, dtype=torch.long)
        mask[index, first : first + num_before + len(row)] = 1
    with torch.no_grad():
        embeds = model.embed(ids.to(device))
    if soft_prompt is not None:
        columns = starts[:, None] - num_soft + torch.arange(num_soft)  # (batch, num_virtual_tokens)
        rows_index = torch.arange(len(rows))[:, None].expand_as(columns)
        vectors = soft_prompt.to(embeds.dtype).expand(len(rows), -1, -1)
        embeds = embeds.index_put((rows_index.to(device), columns.to(device)), vectors)
    return Batch(embeds, mask.to(device), starts.to(device))


def logits_at(model: LoadedModel, rows: Tensor, columns: Tensor, **inputs: Any) -> tuple[Tensor, Any]:
    """Logits (n, vocab), in the model's dtype, at n places of a forward pass, and the pass's output.

    The head of a 262k vocabulary over all positions costs gigabytes, and sliced 3-D states make torch copy the head's
    weight for every row. So the hidden states are gathered into 2-D on their way into the head; whatever the model does
    to logits after it (soft capping, scaling) still happens.
    """
    head = model.model.get_output_embeddings()

    def gather(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        states = args[0]
        return states[rows.to(states.device), columns.to(states.device)], *args[1:]

    hook = head.register_forward_pre_hook(gather)
    try:
        with _head_in_blocks(head):
            output = model.model(**inputs)
    finally:
        hook.remove()
    return output.logits, output


@contextmanager
def _head_in_blocks(head: Any) -> Iterator[None]:
    """While this lasts, a plain float32 head on a CPU goes through its weight block by block.

    In one piece, few states against a weight of many rows take twice as long: docs/performance.md.
    """
    plain = type(head) is torch.nn.Linear and head.weight.device.type == "cpu" and head.weight.dtype == torch.float32
    if plain:
        head.forward = functools.partial(_linear_in_blocks, head.weight, head.bias)
    try:
        yield
    finally:
        if plain:
            del head.forward


def _linear_in_blocks(weight: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    """`linear(states, weight, bias)` of states (n, hidden) and a weight (vocab, hidden): (n, vocab)."""
    whole = len(weight) - len(weight) % _BLOCK
    blocks = weight[:whole].view(-1, _BLOCK, weight.shape[1])
    of_blocks = torch.bmm(states.expand(len(blocks), -1, -1), blocks.transpose(1, 2))  # (blocks, n, _BLOCK)
    logits = of_blocks.transpose(0, 1).reshape(len(states), whole)
    if whole < len(weight):
        logits = torch.cat([logits, torch.nn.functional.linear(states, weight[whole:])], dim=1)
    return logits if bias is None else logits + bias


def totals_and_likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the sum of exponentials, and the likeliest token, of each row of logits (n, vocab): both (n,), float32.

    A few rows at a time, which fit a processor's cache: over all at once each of the passes goes to memory.
    """
    parts = [(part.logsumexp(dim=-1), part.argmax(dim=-1)) for part in _a_few_rows_each(logits)]
    return torch.cat([totals for totals, _ in parts]), torch.cat([likeliest for _, likeliest in parts])


def likeliest_tokens(logits: Tensor) -> Tensor:
    """The likeliest token of each row of logits (n, vocab): (n,); NO_NUMBER where its logit is nan or infinite."""
    found = []
    for part in _a_few_rows_each(logits):
        likeliest = part.argmax(dim=-1)  # of a nan, if there is one
        highest = part.gather(-1, likeliest[:, None])[:, 0]
        found.append(likeliest.where(highest.isfinite(), NO_NUMBER))
    return torch.cat(found)


def _a_few_rows_each(logits: Tensor) -> Iterator[Tensor]:
    size = 4 if logits.device.type == "cpu" else len(logits)
    return (part.float() for part in logits.split(size))


def target_places(batch: Batch, places: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows and columns (n,) whose logits predict the tokens at `places` of each row's text."""
    rows = [index for index, of_row in enumerate(places) for _ in of_row]
    offsets = [place - 1 for of_row in places for place in of_row]
    row_index = torch.tensor(rows, device=batch.starts.device)
    return row_index, batch.starts[row_index] + torch.tensor(offsets, device=batch.starts.device)
