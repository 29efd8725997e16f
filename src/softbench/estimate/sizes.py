"""How large a model is and how it reads text, without its weights."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softbench.errors import ModelError
from softbench.estimate.counting import Reader, Tokens, by_characters
from softbench.spec import ModelSpec
from softbench.types import ChatTemplate, Message

if TYPE_CHECKING:
    from softbench.models import LoadedModel

# What is read of a model on the hub: everything but weights.
_SMALL_FILES = ["*.json", "*.model", "*.jinja", "*.txt"]
_IN_NAME = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
_UNITS = {"b": 1e9, "m": 1e6}
# A usual shape: layers 128 wide for each layer there is, 12 x width^2 parameters each, a vocabulary of 128,000.
_WIDTH_A_LAYER, _PARAMETERS_A_LAYER, _VOCABULARY = 128, 12, 128_000


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What counts for a run's cost. `kv_size` is the width of a layer's keys, or values, and `known_from` where all of
    this comes from; `max_length` is None where it is not known."""

    num_parameters: int
    num_body_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    kv_size: int
    vocab_size: int
    max_length: int | None
    known_from: str

    @property
    def num_head_parameters(self) -> int:
        """Parameters that a place goes through whose logits are wanted."""
        return self.hidden_size * self.vocab_size


def describe(model: ModelSpec, chat: bool) -> tuple[ModelSize, Reader]:
    """The model's size and how it reads text, with its chat template if `chat`.

    Both come from configuration and tokenizer where these are at hand or on the hub, the size else from the spec or the
    model's name. Raises ModelError where nothing says how large it is.
    """
    outline = _outline(model)
    if outline is not None:
        return _size_of(outline), _reader_of(model.source, outline, chat)
    reader = Reader("characters", by_characters, 1, PlainTemplate() if chat else None, exact=False)
    if model.parameters is not None:
        return assumed_size(model.parameters, "the spec's number of parameters, a usual shape"), reader
    named = parameters_in(model.source)
    if named is None:
        raise ModelError(
            f"model {model.source!r} is not at hand, the hub did not give its configuration, and its name does not say "
            "how large it is; give 'parameters' beside its 'source' in a spec file, such as 7.6e9"
        )
    return assumed_size(named, "the number of parameters in its name, a usual shape"), reader


def parameters_in(name: str) -> float | None:
    """The number of parameters that a name ends with, as people write it: 7e9 of `org/model-7B-chat`."""
    found = _IN_NAME.findall(name.rpartition("/")[2])
    return float(found[-1][0]) * _UNITS[found[-1][1].lower()] if found else None


def assumed_size(num_parameters: float, known_from: str) -> ModelSize:
    """The size of a model of which the number of parameters alone is known."""
    num_layers = max(1, round((num_parameters / (_PARAMETERS_A_LAYER * _WIDTH_A_LAYER**2)) ** (1 / 3)))
    width = num_layers * _WIDTH_A_LAYER
    # A small model is not all vocabulary.
    embeddings = min(_VOCABULARY * width, num_parameters / 2)
    return ModelSize(
        num_parameters=round(num_parameters),
        num_body_parameters=round(num_parameters - embeddings),
        num_layers=num_layers,
        hidden_size=width,
        intermediate_size=4 * width,
        kv_size=width // 4,
        vocab_size=_VOCABULARY,
        max_length=None,
        known_from=known_from,
    )


def _outline(model: ModelSpec) -> "LoadedModel | None":
    """The model without weights; None where it is a hub id that neither a cache nor the hub has."""
    folder: str | None = model.source
    if not Path(model.source).expanduser().exists():
        folder = _from_hub(model.source, model.revision)
    if folder is None:
        return None
    from softbench.models import outline_model

    return outline_model(folder)


def _from_hub(hub_id: str, revision: str | None) -> str | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return snapshot_download(hub_id, revision=revision, allow_patterns=_SMALL_FILES, ignore_patterns=["*/*"])
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError):
        return None  # what is assumed in its place is said


def _size_of(outline: "LoadedModel") -> ModelSize:
    info, text = outline.info, outline.model.config.get_text_config()
    heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return ModelSize(
        num_parameters=info.num_parameters,
        num_body_parameters=info.num_body_parameters,
        num_layers=text.num_hidden_layers,
        hidden_size=info.hidden_size,
        intermediate_size=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        kv_size=(getattr(text, "num_key_value_heads", None) or heads) * head_size,
        vocab_size=info.vocab_size,
        max_length=info.max_length,
        known_from="its configuration",
    )


def _reader_of(source: str, outline: "LoadedModel", chat: bool) -> Reader:
    template: ChatTemplate | None = None
    if chat:
        from softbench.models import with_chat_template

        outline, template = with_chat_template(outline)
    tokenizer = outline.tokenizer

    def encode(texts: Sequence[str]) -> list[Tokens]:
        found: list[Tokens] = tokenizer(list(texts), add_special_tokens=False).input_ids if texts else []
        return found

    return Reader(source, encode, int(outline.bos_id is not None), template, exact=True)


class PlainTemplate:
    """A ChatTemplate about as long as a usual one, for models whose own is not at hand."""

    hash = "assumed"

    def render(self, messages: Sequence[Message], open_reply: bool) -> str:
        """Each turn between marks."""
        turns = [f"<|start|>{message['role']}\n{message['content']}<|end|>\n" for message in messages]
        return "".join([*turns, "<|start|>assistant\n"] if open_reply else turns)
