"""Reading a prefix once for many rows: its keys and values, rows that go on from them, and who may attend to whom.

The prefix is BOS, soft prompt and whatever text all prompts begin with. A row that goes on from it is a tree: a trunk,
then branches that know the trunk and not each other, so that a question's options cost one pass. A token's attention is
spelt out in a mask from its branch and position; nothing hangs on where in a buffer it lies, so that sliding windows
are as exact as full attention. Tuning shares its prefix in the same way, gradients and all.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from softbench.models import LoadedModel
from softbench.rows import logits_at

_SHORT = 256
PADDING = -1
"""The branch of a place that holds no token. The trunk and the prefix are branch 0."""


@dataclass(frozen=True)
class Prefix:
    """What `length` tokens left in each layer: keys and values (prompts, heads, length, dim); none at length 0.

    `prompts` is 1, or how many soft prompts stand before the same text.
    """

    length: int
    layers: tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Nodes:
    """Tokens of a batch of rows: ids, branches and positions (from the row's BOS), each (rows, width)."""

    ids: Tensor
    branches: Tensor
    positions: Tensor


def read_prefix(model: LoadedModel, ids: Sequence[int], vectors: Tensor | None) -> Prefix:
    """Keys and values of `bos | vectors | ids`, of each soft prompt in `vectors` ([prompts,] num_virtual, hidden)."""
    bos = [] if model.bos_id is None else [model.bos_id]
    count = 1 if vectors is None or vectors.ndim == 2 else vectors.shape[0]

    def embedded(tokens: Sequence[int]) -> Tensor:
        found: Tensor = model.embed(torch.tensor(list(tokens), dtype=torch.long, device=model.device))
        return found.expand(count, -1, -1)

    parts = [embedded(bos)]
    if vectors is not None:
        parts.append(vectors.to(parts[0].dtype).expand(count, -1, -1))
    parts.append(embedded(ids))
    embeds = torch.cat(parts, dim=1)
    length = embeds.shape[1]
    if not length:
        return Prefix(0, ())
    positions = torch.arange(length, device=model.device).expand(count, -1)
    trunk = torch.zeros_like(positions)
    cache: Any = DynamicCache()
    _forward(model, cache, attention_masks(model, trunk, positions, trunk, positions), positions, inputs_embeds=embeds)
    return Prefix(length, tuple((layer.keys, layer.values) for layer in cache.layers))


def nodes_of(model: LoadedModel, trees: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]], start: int) -> Nodes:
    """Trees (a trunk and its branches) as rows, padded on the right, behind `start` places."""
    rows = [[trunk, *branches] for trunk, branches in trees]
    width = max(sum(map(len, parts)) for parts in rows)
    shape = (len(rows), width)
    ids, positions = torch.full(shape, model.eos_ids[0]), torch.zeros(shape, dtype=torch.long)
    branches_of = torch.full(shape, PADDING)
    for row, parts in enumerate(rows):
        count = sum(map(len, parts))
        ids[row, :count] = torch.tensor([token for part in parts for token in part])
        branches_of[row, :count] = torch.tensor([number for number, part in enumerate(parts) for _ in part])
        firsts = [start, *([start + len(parts[0])] * (len(parts) - 1))]
        places = [first + place for first, part in zip(firsts, parts, strict=True) for place in range(len(part))]
        positions[row, :count] = torch.tensor(places)
    return Nodes(ids.to(model.device), branches_of.to(model.device), positions.to(model.device))


def logits_behind(
    model: LoadedModel, prefix: Prefix, owners: Sequence[int], nodes: Nodes, rows: Tensor, columns: Tensor
) -> Tensor:
    """Logits at (rows, columns) of `nodes`, (n, vocab), through which gradients flow to the prefix.

    `owners` says behind which of the prefix's soft prompts each row of `nodes` stands.
    """
    which = torch.tensor(owners, device=model.device)
    cache: Any = Cache(layers=[_layer_of(keys, values, which) for keys, values in prefix.layers])
    masks = _masks_behind(model, prefix.length, nodes)
    with torch.no_grad():
        embeds = model.embed(nodes.ids)
    return _forward(model, cache, masks, nodes.positions, rows, columns, inputs_embeds=embeds)


def _layer_of(keys: Tensor, values: Tensor, owners: Tensor) -> Any:
    def of_rows(states: Tensor) -> Tensor:
        return states.expand(len(owners), -1, -1, -1) if len(states) == 1 else states[owners.to(states.device)]

    layer: Any = DynamicLayer()
    layer.keys, layer.values = of_rows(keys), of_rows(values)
    layer.is_initialized = True
    return layer


def _masks_behind(model: LoadedModel, length: int, nodes: Nodes) -> Any:
    """Masks for `nodes` behind a prefix of `length`."""
    before = torch.arange(length, device=model.device).expand(nodes.ids.shape[0], -1)
    positions = torch.cat([before, nodes.positions], dim=1)
    branches = torch.cat([torch.zeros_like(before), nodes.branches], dim=1)
    return attention_masks(model, nodes.branches, nodes.positions, branches, positions)


class RowCache:
    """Keys and values of up to `room` rows that go on from one prefix; the token at position p of a row's trunk lies in
    slot p.

    `lengths` (rows,) are the slots that the rows use; what lies behind the last of these rows is room for others.
    """

    def __init__(self, model: LoadedModel, prefix: Prefix, room: int, slots: int) -> None:
        self._model = model
        self.slots = slots
        self.prefix_length = prefix.length
        self.lengths = torch.zeros(0, dtype=torch.long, device=model.device)
        self.at: Tensor | None = None
        self.visible = 0
        count = int(model.model.config.get_text_config().num_hidden_layers)
        layers = prefix.layers or ((None, None),) * count
        self._layers: list[Any] = [_SlotLayer(self, room, keys, values) for keys, values in layers]
        self._cache = Cache(layers=self._layers)

    def read(self, nodes: Nodes, rows: Tensor, columns: Tensor) -> Tensor:
        """Read whole rows behind the prefix; logits at (rows, columns) of `nodes`, (n, vocab)."""
        masks = _masks_behind(self._model, self.prefix_length, nodes)
        self.at, self.visible = None, self.prefix_length + nodes.ids.shape[1]
        self.lengths = self.prefix_length + (nodes.branches == 0).sum(dim=1)
        embeds = self._model.embed(nodes.ids)
        return _forward(self._model, self._cache, masks, nodes.positions, rows, columns, inputs_embeds=embeds)

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token a row (rows,); its logits (rows, vocab)."""
        model = self._model
        positions = self.lengths[:, None]
        self.at, self.visible = self.lengths, int(self.lengths.max()) + 1
        slots = torch.arange(self.visible, device=model.device).expand(len(tokens), -1)
        trunk = torch.zeros_like(slots)
        masks = attention_masks(model, torch.zeros_like(positions), positions, trunk, slots)
        rows = torch.arange(len(tokens), device=model.device)
        logits = _forward(model, self._cache, masks, positions, rows, torch.zeros_like(rows), input_ids=tokens[:, None])
        self.lengths = self.lengths + 1
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Let all rows but `rows` go, which are in this order from now on."""
        moved = [(old, new) for new, old in enumerate(rows) if old != new]
        self.lengths = self.lengths[torch.tensor(rows, dtype=torch.long, device=self._model.device)]
        if moved:
            old, new = (list(places) for places in zip(*moved, strict=True))
            for layer in self._layers:
                for buffer in (layer.keys, layer.values):
                    used = buffer[:, :, self.prefix_length : self.visible]
                    used[new] = used[old]

    def join(self, other: "RowCache") -> None:
        """Take the rows of `other`, which go on from the same prefix, behind one's own. There must be room."""
        first, count = len(self.lengths), len(other.lengths)
        self.lengths = torch.cat([self.lengths, other.lengths])
        self.visible = max(self.visible, other.visible)
        for mine, theirs in zip(self._layers, other._layers, strict=True):
            mine.take(theirs, slice(first, first + count), slice(self.prefix_length, other.visible))


class _SlotLayer(DynamicLayer):
    """One layer's buffers (rows, heads, slots, dim): made once with all the room they need, written in place."""

    def __init__(self, owner: RowCache, room: int, keys: Tensor | None, values: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys: Any = None
        self.values: Any = None
        self._owner = owner
        self._room = room
        if keys is not None and values is not None:
            for buffer, states in zip(self._make_buffers(keys, values), (keys, values), strict=True):
                buffer[:, :, : states.shape[2]] = states

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new states to their slots and give all that can be seen."""
        if not self.is_initialized:
            self._make_buffers(key_states, value_states)
        owner, rows = self._owner, len(key_states)
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            if owner.at is None:
                buffer[:rows, :, owner.prefix_length : owner.visible] = states
            else:
                buffer[torch.arange(rows, device=buffer.device), :, owner.at.to(buffer.device)] = states[:, :, 0]
        return self.keys[:rows, :, : owner.visible], self.values[:rows, :, : owner.visible]

    def take(self, other: "_SlotLayer", rows: slice, slots: slice) -> None:
        """Copy the first rows of `other` to `rows`, at `slots`."""
        if not self.is_initialized:
            self._make_buffers(other.keys, other.values)
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            mine[rows, :, slots] = theirs[: rows.stop - rows.start, :, slots]

    def get_seq_length(self) -> int:
        """Slots in use before the call."""
        return self._owner.prefix_length if self._owner.at is None else self._owner.visible - 1

    def _make_buffers(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Empty buffers for states like these."""
        # Zeros: what is masked counts nothing only where it is a number.
        self.keys, self.values = (
            like.new_zeros(self._room, like.shape[1], self._owner.slots, like.shape[3]) for like in (keys, values)
        )
        self.is_initialized = True
        return self.keys, self.values


def attention_masks(
    model: LoadedModel, query_branches: Tensor, query_positions: Tensor, key_branches: Tensor, key_positions: Tensor
) -> Any:
    """Who sees whom, (rows, 1, queries, keys): what lies before it in the trunk or its own branch, within the window.

    A mapping from kind of layer to mask where a model has layers of several kinds, else one mask.
    """
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    same = (key_branches[:, None, :] == 0) | (key_branches[:, None, :] == query_branches[:, :, None])
    seen = same & (key_branches[:, None, :] != PADDING) & (distance >= 0)
    config = model.model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())

    def mask(within: int | None) -> Tensor:
        allowed = seen if within is None else seen & (distance < within)
        if config._attn_implementation == "sdpa":
            return allowed[:, None]
        lowest = torch.finfo(model.model.dtype).min
        return torch.zeros_like(allowed[:, None], dtype=model.model.dtype).masked_fill_(~allowed[:, None], lowest)

    if len(kinds) > 1:
        return {kind: mask(window if kind == "sliding_attention" else None) for kind in kinds}
    return mask(None if kinds == {"full_attention"} else window)


def can_share(model: LoadedModel) -> bool:
    """Whether `model` gives the same logits behind a prefix read apart and in branches as in plain rows; tried out.

    Kinds of attention and cache that softbench does not know fail here, and their models read every row whole.
    """
    config = model.model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if config._attn_implementation not in ("sdpa", "eager") or kinds - {"full_attention", "sliding_attention"}:
        return False
    first = [index % len(model.tokenizer) for index in range(3, 9)]
    ends = [(first[0], first[1]), (first[2],)]
    bos = [] if model.bos_id is None else [model.bos_id]
    with torch.inference_mode():
        plain = [
            model.model(input_ids=torch.tensor([[*bos, *first, *end]], device=model.device), use_cache=False).logits
            for end in ends
        ]
        try:
            prefix = read_prefix(model, first[:3], None)
            start = prefix.length
            nodes = nodes_of(model, [(first[3:], ends)], start)
            rows, columns = torch.zeros(2, dtype=torch.long), torch.tensor([4, 5])
            cache = RowCache(model, prefix, 1, start + 6)
            shared = cache.read(nodes, rows.to(model.device), columns.to(model.device))
        except Exception as error:  # whatever an unknown architecture makes of masks and caches
            logging.getLogger("softbench").debug("%s can't share a prefix: %r", model.info.name, error)
            return False
    wanted = torch.stack([one[0, -1].float() for one in plain])
    # Above what rounding does, below what another input does.
    allowed = (0.02 if model.model.dtype == torch.bfloat16 else 1e-4) * float(wanted.std())
    return float((wanted - shared.float()).abs().mean()) <= allowed


@contextmanager
def attention_for_tuning(model: LoadedModel, longest: int) -> Iterator[None]:
    """While this lasts, attention is computed as is fastest for rows of up to `longest` tokens, there and back.

    On CPUs the fused kernel's backward pass takes longer than plain matrix products where rows are short; measured in
    docs/performance.md.
    """
    before = model.model.config._attn_implementation
    plain = before == "sdpa" and model.device.type == "cpu" and longest <= _SHORT
    if plain:
        model.model.set_attn_implementation("eager")
    try:
        yield
    finally:
        if plain:
            model.model.set_attn_implementation(before)


def _forward(
    model: LoadedModel,
    cache: Cache,
    masks: Any,
    positions: Tensor,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    **inputs: Tensor,
) -> Tensor:
    """A pass that fills `cache`; logits at (rows, columns), at none where they are not given."""
    nowhere = torch.zeros(0, dtype=torch.long, device=model.device)
    logits, _ = logits_at(
        model,
        nowhere if rows is None else rows,
        nowhere if columns is None else columns,
        attention_mask=masks,
        position_ids=positions,
        use_cache=True,
        **{model.cache_argument: cache},
        **inputs,
    )
    return logits
