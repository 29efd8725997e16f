"""What learns, step by step: weights with their optimizer and schedule, the batches to come, and all that was seen.

Its state can be taken after any step and put into a fresh learner of the same kind, which goes on to the same bits.
"""

import hashlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softbench.methods.losses import Example, Room
from softbench.types import FailedTry, Keeper, LoraSettings, TuneSettings, TuningState

MAX_GRADIENT_NORM = 1.0
# Batches that are sorted by length together.
GROUPED = 8
# How often the learning rate is halved, where that is asked for, before tuning gives up.
HALVINGS = 3

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Kept:
    """The weights after a step that was asked for, and what it had taken until then: tokens and seconds."""

    arrays: Arrays
    num_tokens: int
    seconds: float


Look = Callable[[int, Arrays, list[float]], bool]
"""Called after a step with how many there were, the weights, and a list of what it saw before; true ends the tuning."""


class Learner:
    """Weights in the making. `peak_rate` is the optimizer's highest, in its own units; `generator` draws the batches;
    `prompt` is the soft prompt before the examples, if that is what learns; `look` may end the tuning; `seconds` are
    those that were spent so far."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        peak_rate: float,
        settings: TuneSettings | LoraSettings,
        examples: Sequence[Example],
        generator: torch.Generator,
        prompt: Tensor | None = None,
        look: Look | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.examples = examples
        self.prompt = prompt
        self.seconds = seconds
        self.failure: str | None = None
        """Why it can't go on, if it can't."""
        self._weights = dict(weights)
        self._optimizer = optimizer
        self._peak_rate = peak_rate
        self._settings = settings
        self._checkpoints = settings.checkpoints if isinstance(settings, TuneSettings) else ()
        self._look = look
        self._generator = generator
        self._first_order = generator.get_state()
        self._first_weights = {name: one.detach().clone() for name, one in self._weights.items()}
        self.forget()

    def forget(self) -> None:
        """Be as new."""
        self.num_tokens = 0
        self.failed_tries: list[FailedTry] = []
        self._begin()

    def _begin(self) -> None:
        """Stand before the first step."""
        with torch.no_grad():
            for name, one in self._weights.items():
                one.copy_(self._first_weights[name])
        self._optimizer.state.clear()
        self._generator.set_state(self._first_order)
        self._order = self._first_order
        settings = self._settings
        self._batches = batches(self.examples, settings.steps, settings.batch_size, self._generator)
        self._batch: list[Example] = []
        self.losses: list[float] = []
        self.kept: dict[int, Kept] = {}
        self._seen: list[float] = []
        self._stopped = False
        self.note(0.0)

    @property
    def ended(self) -> bool:
        """Whether there is no step to come."""
        return self._stopped or self.failure is not None or len(self.losses) == self._settings.steps

    @property
    def is_small(self) -> bool:
        """Whether its state can be taken after every step at next to no cost."""
        return sum(one.numel() for one in self._weights.values()) < 1 << 20

    def next_batch(self) -> list[Example]:
        """The batch of the next step; the gradient of the last one is gone."""
        self.clear()
        self._batch = next(self._batches)
        return self._batch

    def clear(self) -> None:
        """Forget the gradient."""
        self._optimizer.zero_grad()

    def step(self, loss: float) -> None:
        """Change the weights by their gradient; begin again at half the rate, or fail, where that is no number."""
        settings, done = self._settings, len(self.losses)
        self.num_tokens += sum(len(example.ids) for example in self._batch)
        if not math.isfinite(loss):
            self._met(f"a loss of {loss}")
            return
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights.values(), MAX_GRADIENT_NORM))
        if not math.isfinite(norm):
            self._met(f"a gradient of {norm}")
            return
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate_of(self._peak_rate) * rate_factor(done, settings.steps, settings.warmup_steps)
        self._optimizer.step()
        self.losses.append(loss)
        self._order = self._generator.get_state()

    def _rate_of(self, first: float) -> float:
        return float(first * 0.5 ** len(self.failed_tries))

    def _met(self, what: str) -> None:
        """Deal with a number that is none."""
        settings, step = self._settings, len(self.losses) + 1
        rate = self._rate_of(settings.learning_rate)
        # Before the first change, no rate can be to blame.
        if settings.retry_lower_rate and step > 1 and len(self.failed_tries) < HALVINGS:
            self.failed_tries.append(FailedTry(rate, step, what))
            logging.getLogger("softbench").warning(
                "tuning step %d of %d met %s: beginning again at a learning rate of %g",
                step,
                settings.steps,
                what,
                rate / 2,
            )
            self._begin()
            return
        advice = f"a lower --learning-rate than {rate:g} or --dtype float32"
        if step == 1:
            advice = "--dtype float32: nothing was changed yet, so that no learning rate is to blame"
        elif not settings.retry_lower_rate:
            advice = f"--retry-lower-rate, {advice}"
        self.failure = f"tuning step {step} of {settings.steps} met {what}; try {advice}"

    def note(self, seconds: float) -> None:
        """Add time, and keep the weights where this step is a checkpoint."""
        self.seconds += seconds
        done = len(self.losses)
        if done in self._checkpoints and done not in self.kept:
            self.kept[done] = Kept(self.arrays(), self.num_tokens, self.seconds)

    def look(self) -> None:
        """Let whoever looks say whether this was enough; its time counts as tuning."""
        if self._look is not None and self.losses and not self.ended:
            started = time.perf_counter()
            self._stopped = self._look(len(self.losses), self.arrays(), self._seen)
            self.seconds += time.perf_counter() - started

    def arrays(self) -> Arrays:
        """The weights as they are now, float32."""
        return {name: _as_array(one) for name, one in self._weights.items()}

    def identity(self) -> str:
        """Hash of what it learns from, how, and where it starts: equal for learners that go the same way."""
        digest = hashlib.sha256(repr((self._settings, self._peak_rate, torch.__version__)).encode())
        digest.update(self._first_order.numpy().tobytes())
        for name, one in self._first_weights.items():
            digest.update(name.encode() + _as_array(one).tobytes())
        for example in self.examples:
            digest.update(repr((example.ids, example.learned)).encode())
        return digest.hexdigest()

    def state(self) -> TuningState:
        """All that a fresh learner needs to go on from here."""
        arrays = {f"weight/{name}": one for name, one in self.arrays().items()}
        of_optimizer = self._optimizer.state_dict()["state"]
        for place, name in enumerate(self._weights):
            for moment in ("exp_avg", "exp_avg_sq") if of_optimizer else ():
                arrays[f"{moment}/{name}"] = _as_array(of_optimizer[place][moment])
        for step, kept in self.kept.items():
            arrays |= {f"kept{step}/{name}": one for name, one in kept.arrays.items()}
        arrays["generator"] = self._order.numpy()
        values = {
            "losses": list(self.losses),
            "num_tokens": self.num_tokens,
            "seconds": self.seconds,
            "kept": [[step, kept.num_tokens, kept.seconds] for step, kept in self.kept.items()],
            "failed_tries": [asdict(one) for one in self.failed_tries],
            "seen": list(self._seen),
            "stopped": self._stopped,
        }
        return TuningState(arrays, values)

    def restore(self, state: TuningState) -> None:
        """Go on from a state. Raises KeyError, TypeError or ValueError where it is not one of such a learner."""
        arrays, values = state.arrays, state.values
        losses = [float(loss) for loss in values["losses"]]
        if len(losses) > self._settings.steps:
            raise ValueError(f"it has taken {len(losses)} steps of {self._settings.steps}")
        self._begin()
        for _ in losses:
            next(self._batches, None)
        self._order = self._generator.get_state()
        if not np.array_equal(arrays["generator"], self._order.numpy()):
            raise ValueError("its samples come in another order")
        with torch.no_grad():
            for name, one in self._weights.items():
                one.copy_(_as_tensor(arrays[f"weight/{name}"], one))
        if losses:
            moments = {
                place: {
                    "step": torch.tensor(float(len(losses))),
                    "exp_avg": _as_tensor(arrays[f"exp_avg/{name}"], one),
                    "exp_avg_sq": _as_tensor(arrays[f"exp_avg_sq/{name}"], one),
                }
                for place, (name, one) in enumerate(self._weights.items())
            }
            self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": moments})
        self.losses = losses
        self.num_tokens, self.seconds = int(values["num_tokens"]), float(values["seconds"])
        for step, num_tokens, seconds in values["kept"]:
            of_step = {name: np.array(arrays[f"kept{step}/{name}"]) for name in self._weights}
            self.kept[int(step)] = Kept(of_step, int(num_tokens), float(seconds))
        self.failed_tries = [FailedTry(**one) for one in values["failed_tries"]]
        self._seen = [float(one) for one in values["seen"]]
        self._stopped = bool(values["stopped"])


def identity_of(learners: Sequence[Learner]) -> str:
    """What names the tuning of these learners together."""
    return hashlib.sha256(" ".join(learner.identity() for learner in learners).encode()).hexdigest()


def state_of(learners: Sequence[Learner], room: Room, identity: str) -> TuningState:
    """The state of learners that learn in the same passes."""
    states = [learner.state() for learner in learners]
    arrays = {f"{place}/{name}": one for place, state in enumerate(states) for name, one in state.arrays.items()}
    values = {"identity": identity, "max_tokens": room.max_tokens, "learners": [state.values for state in states]}
    return TuningState(arrays, values)


def resume(learners: Sequence[Learner], room: Room, identity: str, keeper: Keeper) -> None:
    """Put what `keeper` has of these fresh learners into them, if anything."""
    state = keeper.find(identity)
    if state is None:
        return
    try:
        for place, (learner, values) in enumerate(zip(learners, state.values["learners"], strict=True)):
            begin = f"{place}/"
            arrays = {name.removeprefix(begin): one for name, one in state.arrays.items() if name.startswith(begin)}
            learner.restore(TuningState(arrays, values))
        room.max_tokens = max(1, int(state.values["max_tokens"]))
    except (KeyError, TypeError, ValueError) as error:
        keeper.note(f"the state of the tuning does not fit it ({error}); tuning starts anew")
        for learner in learners:
            learner.forget()


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


def _as_array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().astype(np.float32, copy=True)


def _as_tensor(array: NDArray[Any], like: Tensor) -> Tensor:
    """A copy of `array`. Raises ValueError where it is not of the shape and kind of `like`."""
    if array.shape != tuple(like.shape) or array.dtype != np.float32:
        raise ValueError(f"an array of shape {array.shape} stands where {tuple(like.shape)} is wanted")
    return torch.tensor(array)
