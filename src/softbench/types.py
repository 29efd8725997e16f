"""The values that travel between the parts of softbench: frozen, typed, free of torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

Split = Literal["tune", "validation", "shots", "test"]
"""What a benchmark's samples are for: to tune on, to choose settings on, to show as worked examples, to score on."""

Formulation = Literal["mcf", "cf", "generation"]
"""How a question is put (OLMES, arXiv 2406.08446): options listed and a letter chosen (mcf); each option's text scored
as a continuation (cf); a free completion (generation). Results of different formulations are not comparable."""

FinishReason = Literal["eos", "stop", "length"]
"""Why a completion ended: the model's end token, a stop string, or the token limit."""

ChoiceNorm = Literal["raw", "per_char", "per_byte", "per_token", "pmi"]
"""How options' log-likelihoods are made comparable: not at all, over the option's length, or (pmi) less what the option
has without the question."""

Labels = Literal["gold", "shuffled"]
"""What is tuned on: the right answers, or a control that gives each question another one's."""

LossOn = Literal["target", "format"]
"""Which of a target's tokens are learned: all, or a control without those that carry the answer's content."""

Options = Literal["given", "shuffled"]
"""The order of a test question's options: as the data have them, or a control that draws it anew."""


class Status(StrEnum):
    """What the strict parser made of a completion."""

    OK = "OK"
    NO_ANSWER = "NO_ANSWER"
    AMBIGUOUS = "AMBIGUOUS"
    TRUNCATED = "TRUNCATED"


@dataclass(frozen=True, slots=True)
class Sample:
    """One question of a benchmark.

    `answers` holds every accepted answer, the one used as tuning target first. A multiple-choice sample has its options
    in `choices` and the index of the right one in `gold`; an open one has none and `gold` is None. `reasoning` is the
    worked solution that comes before the answer in a target, and `group` the part of the benchmark (MMLU's subject).
    Samples of one `cluster` (of questions on one passage, or of one subject) are not independent of each other.
    """

    id: str
    fields: Mapping[str, Any]
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    gold: int | None = None
    reasoning: str = ""
    group: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text that a model reads for one sample, and what it should say.

    `text` ends without a space; `target` and each of `continuations` start with one where the format wants it, so that
    text and continuation can be tokenized together. `continuations` are in the order of the sample's choices.
    `num_shared` counts the first characters of `text` that other prompts begin with, too: a hint that costs nothing if
    wrong. `content` are the parts [begin, end) of `target` that carry the answer rather than its form.
    """

    sample_id: str
    text: str
    target: str
    continuations: tuple[str, ...] = ()
    num_shared: int = field(default=0, compare=False)
    content: tuple[tuple[int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model generated: `text` without end token or stop string, and how many tokens went in and came out."""

    text: str
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """Log-likelihood (natural log, summed over tokens) of one continuation, whether every token was the greedy one.

    `premise_logprob` is what the same continuation has behind the task's cue alone, where that was asked.
    """

    logprob: float
    num_tokens: int
    is_greedy: bool
    premise_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class ChoiceScores:
    """The scores of a prompt's continuations, and what the model would say by itself where these first differ.

    There, `answer_mass` is the probability of all tokens that one of them goes on with; `top_token` is the likeliest
    token of the whole vocabulary and `top_options` the continuations that go on with it. None and empty where fewer
    than two were scored.
    """

    options: tuple[ChoiceScore, ...] = ()
    answer_mass: float | None = None
    top_token: str | None = None
    top_options: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The strict parser's verdict on a completion; `answer` is None unless `status` is OK."""

    status: Status
    answer: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was made of one completion, strictly and leniently; see scoring.parse.judge."""

    status: Status
    answer: str | None
    correct: bool
    lenient_answer: str | None
    lenient_correct: bool


@dataclass(frozen=True, slots=True)
class Record:
    """All that is kept of one sample under one method.

    `completion`, `status` and what follows from them are None where the formulation generates nothing (cf);
    `choice_scores` and `choice_correct` (right by log-likelihood, under each length norm) are empty where there are no
    choices. `answer_mass`, `top_token` and `top_options` are those of ChoiceScores.
    """

    doc_id: int
    sample: Sample
    method: str
    seed: int | None
    prompt: Prompt
    completion: Completion | None
    status: Status | None
    answer: str | None
    correct: bool | None
    lenient_answer: str | None
    lenient_correct: bool | None
    choice_scores: tuple[ChoiceScore, ...] = ()
    choice_correct: Mapping[ChoiceNorm, bool] = field(default_factory=dict)
    answer_mass: float | None = None
    top_token: str | None = None
    top_options: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantity with its interval and, for a mean over samples, its standard error.

    `value` is None (not 0) where nothing was there to estimate it from.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    stderr: float | None = None


@dataclass(frozen=True, slots=True)
class SoftPrompt:
    """Tuned vectors, float32 of shape (num_virtual_tokens, hidden_size), and the card that says how they were made.

    BOS, where a model wants one, comes before them, unless they hold its embedding themselves, wherever their maker
    put it (PEFT: behind the others).
    """

    vectors: NDArray[np.float32]
    card: Mapping[str, Any]
    holds_bos: bool = False


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How a soft prompt is tuned. `learning_rate` is in units of the RMS of the model's input embeddings.

    `loss_on`: all tokens of a target, or those alone that carry none of the answer's content. `checkpoints` are the
    steps after which the vectors are kept, 0 being the start. With `gradient_checkpointing` a layer's activations are
    made again on the way back: less memory, more time. `retry_lower_rate`: at a loss that is no number, begin again at
    half the rate, a few times at most.
    """

    num_virtual_tokens: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    init: Literal["text", "vocab"]
    loss_on: LossOn = "target"
    checkpoints: tuple[int, ...] = ()
    gradient_checkpointing: bool = False
    retry_lower_rate: bool = False


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """How a low-rank adapter is tuned; `learning_rate` is AdamW's own, `alpha / rank` scales what the adapter adds.

    `retry_lower_rate` is TuneSettings'.
    """

    rank: int
    alpha: int
    steps: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    retry_lower_rate: bool = False


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A learning rate at which tuning came to a number that is none, `met` ("a loss of nan"), in step `step`."""

    learning_rate: float
    step: int
    met: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The vectors after a step of tuning, and what it had taken until then: tokens and seconds."""

    vectors: NDArray[np.float32]
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TuneResult:
    """A tuned soft prompt and what it took: the loss of each step (nats a token), samples, tokens and seconds.

    `checkpoints` are by step, those that were asked for. `failed_tries` came before, and count in tokens and seconds.
    """

    soft_prompt: SoftPrompt
    losses: tuple[float, ...]
    num_samples: int
    num_tokens: int
    seconds: float
    checkpoints: Mapping[int, Checkpoint] = field(default_factory=dict)
    failed_tries: tuple[FailedTry, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneFailure:
    """A tuning that came to a number that is none; `why` says at which step, and what may help."""

    why: str


@dataclass(frozen=True, slots=True)
class Adapter:
    """Low-rank weights by name, float32, with their settings, what tuning them took, and the card of saved ones."""

    weights: Mapping[str, NDArray[np.float32]]
    settings: LoraSettings
    losses: tuple[float, ...]
    num_tokens: int
    seconds: float
    card: Mapping[str, Any] = field(default_factory=dict)
    failed_tries: tuple[FailedTry, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """One soft prompt to be tuned on `prompts`, from the embeddings of `init_text` where `settings` say so, while
    `until` lets it."""

    prompts: Sequence[Prompt]
    init_text: str
    settings: TuneSettings
    seed: int
    until: "Until | None" = None


class Tuner(Protocol):
    """Tunes soft prompts for one frozen model."""

    def __call__(
        self, requests: Sequence[TuneRequest], on_step: "OnStep", keeper: "Keeper | None" = None
    ) -> Sequence[TuneResult | TuneFailure]:
        """Tune what is asked for, each step of all in one pass; `on_step` is called after each one's.

        Where one comes to a number that is none, its failure stands in its place, and the others go on.
        """
        ...


class AdapterTuner(Protocol):
    """Tunes a low-rank adapter for one model, which is as it was when this returns."""

    def __call__(
        self,
        prompts: Sequence[Prompt],
        settings: LoraSettings,
        seed: int,
        on_step: "OnStep",
        keeper: "Keeper | None" = None,
    ) -> Adapter:
        """Tune on `prompts`."""
        ...


@dataclass(frozen=True, slots=True)
class TuningState:
    """What a tuning needs to go on where it was cut off: arrays by name, and values that JSON can hold."""

    arrays: Mapping[str, NDArray[Any]]
    values: Mapping[str, Any]


class Keeper(Protocol):
    """Keeps the state of a tuning for another process to go on from; see methods.state."""

    @property
    def due(self) -> bool:
        """Whether what is kept now is written at once."""
        ...

    def find(self, identity: str) -> TuningState | None:
        """The state that was kept of the tuning that `identity` names, if any."""
        ...

    def keep(self, state: TuningState) -> None:
        """Keep the state after a step."""
        ...

    def note(self, line: str) -> None:
        """Tell the user something."""
        ...


OnStep = Callable[[float], None]
"""Called after each tuning step with its loss."""

Until = Callable[[int, SoftPrompt, list[float]], bool]
"""Called after each tuning step with how many there were, the vectors, and what it saw before: a list that it may add
to, and that is kept with the tuning's state. True ends tuning."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What identifies a model in results: two models of equal `fingerprint` give equal answers.

    `num_body_parameters` leaves out input embeddings and head; `files` holds the sha256 of a file it was made from.
    `num_threads` is there where the run is deterministic: another number may move the last bit.
    """

    name: str
    source: str
    fingerprint: str
    revision: str | None
    dtype: str
    device: str
    num_parameters: int
    num_body_parameters: int
    hidden_size: int
    vocab_size: int
    max_length: int
    files: Mapping[str, str] = field(default_factory=dict)
    num_threads: int | None = None


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatTemplate(Protocol):
    """Writes a conversation as the text that a post-trained model was trained on."""

    @property
    def hash(self) -> str:
        """Hash of the template's source: equal hashes mean equal texts."""
        ...

    def render(self, messages: Sequence[Message], open_reply: bool) -> str:
        """The conversation's text without BOS; with `open_reply` it ends where the assistant's next turn begins."""
        ...


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How a prompt becomes a conversation: with a system message, shots as turns of their own or inside one user
    message, and a beginning put into the assistant's mouth."""

    system_instruction: str = ""
    fewshot_as_multiturn: bool = False
    assistant_prefix: str = ""


class Progress(Protocol):
    """Shows how far a piece of work has come; see report.progress for the two that exist."""

    def track(self, label: str, total: int, done: int = 0) -> AbstractContextManager["Advance"]:
        """Follow `total` units of work under `label`, of which `done` were there before."""
        ...

    def note(self, line: str) -> None:
        """Say something beside the progress."""
        ...


class Advance(Protocol):
    """Moves a progress display forward by `amount`, with a word on the side such as the loss."""

    def __call__(self, amount: int, detail: str = "") -> None:
        """`amount` more units are done."""
        ...


class Silence:
    """A Progress that shows nothing."""

    @contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show nothing."""
        yield lambda amount, detail="": None

    def note(self, line: str) -> None:
        """Print nothing."""


SILENT = Silence()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a method made once, before any test sample. `shots` go by the sample's group.

    `constant` is what answers every question alike, without a model: the place of an option, or an open answer.
    """

    shots: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    soft_prompt: SoftPrompt | None = None
    tuning: TuneResult | None = None
    adapter: Adapter | None = None
    constant: int | str | None = None
