"""The training loop of base models: plain, resumable, one thread.

What a training needs to go on, weights and Adam's moments, lies in one safetensors file, written now and then. A killed
training that is called again ends with the same weights as one never killed.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from softbench.files import write_atomic
from studies.laboratory.prose import documents
from studies.laboratory.recipes import ADDS_BOS, CONTEXT, Recipe
from studies.laboratory.tokenizer import BOS, EOS, for_model
from studies.laboratory.world import World

ROWS, LENGTH = 8, CONTEXT // 2
"""Rows of a batch, and tokens in each."""
PEAK_RATE = 3e-3
WARM_UP, SAVE_EVERY = 50, 200
IGNORED = -100
"""The label of a token that is not learned."""

Batch = tuple[Tensor, Tensor]
"""Token ids (rows, length), and for each place the token that should follow, or IGNORED."""


@dataclass(frozen=True)
class Schedule:
    """A training's length and rate: warmed up in a line over `warm_up` steps, then down in a line to nought."""

    steps: int
    peak_rate: float
    warm_up: int

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warm_up:
            return self.peak_rate * (step + 1) / (self.warm_up + 1)
        return self.peak_rate * (self.steps - step) / max(1, self.steps - self.warm_up)


def pretrain(
    recipe: Recipe, world: World, tokenizer: Tokenizer, models: Path, early: tuple[int, ...], seed: int
) -> None:
    """Train the recipe's model and leave it in `models` as `NAME-step100`, and as it was after each of `early` percent.

    A model that is there is not made again.
    """
    if is_saved(models / step_name(recipe, 100)):
        return
    own = for_model(tokenizer, ADDS_BOS[recipe.architecture], CONTEXT)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        recipe.config(len(own), own.bos_token_id, own.eos_token_id, own.pad_token_id)
    )
    tokens = read(recipe, world, tokenizer, recipe.steps * ROWS * LENGTH + 1, seed)

    def batch_of(step: int) -> Batch:
        start = step * ROWS * LENGTH
        ids = torch.from_numpy(tokens[start : start + ROWS * LENGTH].astype(np.int64)).view(ROWS, LENGTH)
        following = torch.from_numpy(tokens[start + 1 : start + 1 + ROWS * LENGTH].astype(np.int64))
        return ids, following.view(ROWS, LENGTH)

    def after(step: int) -> None:
        for percent in early:
            if step == recipe.steps * percent // 100:
                save(model, own, models / step_name(recipe, percent))

    state = models / ".states" / f"{recipe.name}.safetensors"
    fit(model, batch_of, Schedule(recipe.steps, PEAK_RATE, min(WARM_UP, recipe.steps // 4)), after, state, repr(recipe))
    save(model, own, models / step_name(recipe, 100))
    state.unlink(missing_ok=True)


def step_name(recipe: Recipe, percent: int) -> str:
    """What a model is called after a part of its pre-training: `softbench track` reads run and step off it."""
    return f"{recipe.name}-step{percent}"


def read(recipe: Recipe, world: World, tokenizer: Tokenizer, count: int, seed: int) -> NDArray[np.uint16]:
    """The first `count` tokens of the recipe's prose, each document closed by EOS (and opened by BOS, in families that
    have it)."""
    bos, eos = (tokenizer.token_to_id(token) or 0 for token in (BOS, EOS))
    opening = [bos] if ADDS_BOS[recipe.architecture] else []
    texts = documents(world, recipe.knobs, seed, recipe.name)
    tokens: list[int] = []
    while len(tokens) < count:
        for encoded in tokenizer.encode_batch([next(texts) for _ in range(256)], add_special_tokens=False):
            tokens += [*opening, *encoded.ids, eos]
    return np.array(tokens[:count], dtype=np.uint16)


def fit(
    model: Any,
    batch_of: Callable[[int], Batch],
    schedule: Schedule,
    after: Callable[[int], None],
    state: Path | None = None,
    identity: str = "",
) -> list[float]:
    """Train all weights of `model` by AdamW and return the loss of each step (nats a token).

    `after` is called with the number of steps done. With `state`, a training called by the same `identity` goes on from
    what that file has, and writes it as it goes.
    """
    model.train()
    weights = dict(model.named_parameters())
    decayed = [one for one in weights.values() if one.ndim > 1]
    others = [one for one in weights.values() if one.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=schedule.peak_rate,
        betas=(0.9, 0.98),
    )
    losses = [] if state is None else _restore(state, identity, weights, optimizer)
    for step in range(len(losses), schedule.steps):
        ids, following = batch_of(step)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), following.flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        optimizer.step()
        losses.append(float(loss.detach()))
        after(len(losses))
        if state is not None and len(losses) % SAVE_EVERY == 0:
            _keep(state, identity, weights, optimizer, losses)
    return losses


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer to `folder`, which is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def is_saved(folder: Path) -> bool:
    """Whether `save` has written there."""
    return (folder / "config.json").is_file()


def _keep(
    path: Path, identity: str, weights: dict[str, Tensor], optimizer: torch.optim.Optimizer, losses: list[float]
) -> None:
    arrays = dict(_moments(weights, optimizer))
    arrays |= {f"weight/{name}": one.detach() for name, one in weights.items()}
    metadata = {"identity": identity, "losses": json.dumps(losses)}
    write_atomic(path, safetensors.torch.save({name: one.contiguous() for name, one in arrays.items()}, metadata))


def _moments(weights: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for name, one in weights.items():
        for moment in ("exp_avg", "exp_avg_sq"):
            yield f"{moment}/{name}", optimizer.state[one][moment]


def _restore(path: Path, identity: str, weights: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> list[float]:
    """Put what `path` has of this training into its weights and optimizer; the losses until then."""
    if not path.is_file():
        return []
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
        if metadata["identity"] != identity:
            return []
        losses: list[float] = json.loads(metadata["losses"])
        with torch.no_grad():
            for name, one in weights.items():
                one.copy_(file.get_tensor(f"weight/{name}"))
                optimizer.state[one] = {
                    "step": torch.tensor(float(len(losses))),
                    "exp_avg": file.get_tensor(f"exp_avg/{name}"),
                    "exp_avg_sq": file.get_tensor(f"exp_avg_sq/{name}"),
                }
    return losses
