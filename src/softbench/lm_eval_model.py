"""softbench as a model of lm-evaluation-harness: any of its tasks, with a tuned soft prompt before every context.

`softbench lm-eval` runs the harness's `simple_evaluate` with it. From Python, importing this module registers it:

    import softbench.lm_eval_model
    lm_eval.simple_evaluate("softbench", model_args="pretrained=...,soft_prompt=...", tasks=["arc_easy"])
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.registry import register_model

from softbench.engines.transformers import TransformersEngine
from softbench.errors import SpecError
from softbench.methods.peft_format import read_prompt
from softbench.models import load_model, with_chat_template
from softbench.tasks import num_shared
from softbench.types import ChatTemplate, Prompt, SoftPrompt

_MAX_GEN_TOKS = 256
_OWNER = "softbench"
# What the harness passes to every model, or tasks to `generate`, and what of it says greedy decoding.
_GREEDY = {"do_sample": (False, None), "temperature": (0, None), "num_beams": (1, None)}
_IGNORED_UNLESS_SAMPLING = {"top_p", "top_k"}


@register_model("softbench")
class SoftbenchLM(LM):  # type: ignore[misc]  # the harness has no types
    """A frozen causal model behind softbench's engine, with a soft prompt (a folder, ours or PEFT's) or without one.

    Log-likelihoods, whole texts' among them, and greedy completions. Raises SpecError at anything else: sampling,
    several processes. A context that does not fit raises PromptTooLong; it is not cut.
    """

    def __init__(
        self,
        pretrained: str,
        soft_prompt: str | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        device: str | None = "auto",
        batch_size: int | str | None = 16,
        max_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise SpecError(
                f"model argument {next(iter(unknown))!r} is unknown to softbench; give pretrained, soft_prompt, "
                "revision, dtype, device or batch_size"
            )
        # The engine halves its batch where memory does not suffice: `auto` is a large one.
        size = 64 if batch_size in (None, "auto") else _whole_number("batch_size", batch_size)
        self._model = load_model(str(pretrained), str(dtype), str(device or "auto"), revision)
        self._soft_prompt: SoftPrompt | None = None
        if soft_prompt is not None:
            self._soft_prompt = read_prompt(self._model, Path(soft_prompt))
        self._batch_size = size
        self._engine = TransformersEngine(self._model, size)
        self._chat: ChatTemplate | None = None

    @property
    def fingerprint(self) -> str:
        """Hash of all that answers hang on: model, dtype and soft prompt."""
        vectors = b"" if self._soft_prompt is None else self._soft_prompt.vectors.tobytes()
        whole = f"{self._model.info.fingerprint}:{self._model.info.dtype}:".encode() + vectors
        return hashlib.sha256(whole).hexdigest()

    @property
    def tokenizer_name(self) -> str:
        """The model's name, as the harness files tokenized requests under it."""
        return self._model.info.name

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The source of the chat template where one is asked for; softbench knows the tokenizer's own alone."""
        if chat_template is False or chat_template is None:
            return ""
        if isinstance(chat_template, str):
            raise SpecError(f"chat template {chat_template!r} can't be chosen; --apply-chat-template takes no name")
        return str(self._model.tokenizer.chat_template)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as text. Raises ModelError where the model has no chat template."""
        if self._chat is None:
            self._model, self._chat = with_chat_template(self._model)
            self._engine = TransformersEngine(self._model, self._batch_size)
        messages: Any = chat_history
        if add_generation_prompt:
            return self._chat.render(messages, open_reply=True)
        # The last message is the beginning of the model's own: its text stays open.
        said = str(messages[-1]["content"])
        text = self._chat.render(messages, open_reply=False)
        return text[: text.rindex(said) + len(said)]

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Take the harness's cache of responses. Raises SpecError where it holds those of another model or prompt.

        The harness files responses by request alone: with another soft prompt it would give the old ones.
        """
        super().set_cache_hook(cache_hook)
        kept = cache_hook.dbdict
        if kept is None:
            return
        if len(kept) and kept.get(_OWNER) != self.fingerprint:
            raise SpecError(
                f"the response cache {kept.filename!r} holds answers of another model or soft prompt; give another one"
            )
        kept[_OWNER] = self.fingerprint

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes into its results' configuration."""
        info, soft = self._model.info, self._soft_prompt
        return {
            "model_num_parameters": info.num_parameters,
            "model_dtype": info.dtype,
            "model_revision": info.revision,
            "model_sha": info.fingerprint,
            "soft_prompt": None
            if soft is None
            else {
                "num_virtual_tokens": len(soft.vectors),
                **{name: soft.card.get(name) for name in ("sha256", "task", "seed", "answer_format")},
            },
        }

    def loglikelihood(self, requests: "list[Instance]", disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether it is the greedy continuation) of each (context, continuation)."""
        found: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
        for places in _by(requests, lambda request: request.task_name).values():
            # Options of one question come one after another, with one context: they are scored as branches of it.
            groups: list[list[int]] = []
            for place in places:
                if groups and requests[groups[-1][0]].args[0] == requests[place].args[0]:
                    groups[-1].append(place)
                else:
                    groups.append([place])
            shared = num_shared([requests[group[0]].args[0] for group in groups])
            prompts = [
                Prompt(
                    _name(requests[group[0]]),
                    requests[group[0]].args[0],
                    "",
                    tuple(requests[place].args[1] for place in group),
                    shared,
                )
                for group in groups
            ]
            for group, scores in zip(groups, self._engine.score_choices(prompts, self._soft_prompt), strict=True):
                for place, score in zip(group, scores.options, strict=True):
                    found[place] = (score.logprob, score.is_greedy)
        return found

    def loglikelihood_rolling(self, requests: "list[Instance]", disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood (nats) of each whole text behind BOS and soft prompt; it must fit the context in one piece."""
        prompts = [Prompt(_name(one), "", "", (one.args[0],)) for one in requests]
        return [scores.options[0].logprob for scores in self._engine.score_choices(prompts, self._soft_prompt)]

    def generate_until(self, requests: "list[Instance]", disable_tqdm: bool = False) -> list[str]:
        """The greedy completion of each context, up to its stop strings or number of tokens."""
        found = [""] * len(requests)
        groups = _by(requests, lambda request: (request.task_name, *_limits(request.args[1])))
        for (_, max_new_tokens, stop), places in groups.items():
            texts = [requests[place].args[0] for place in places]
            shared = num_shared(texts)
            prompts = [
                Prompt(_name(requests[place]), text, "", (), shared) for place, text in zip(places, texts, strict=True)
            ]
            completions = self._engine.generate(prompts, self._soft_prompt, max_new_tokens, stop)
            for place, completion in zip(places, completions, strict=True):
                found[place] = completion.text
        return found


def _name(request: Any) -> str:
    """What errors call a request's sample."""
    return f"{request.task_name}:{request.doc_id}"


def _by(requests: Sequence[Any], key: Callable[[Any], Any]) -> dict[Any, list[int]]:
    """Places of requests of equal keys, in the order in which they come."""
    groups: dict[Any, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(key(request), []).append(place)
    return groups


def _limits(settings: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """New tokens and stop strings. Raises SpecError at settings that ask for anything but greedy decoding."""
    for name, wanted in _GREEDY.items():
        if settings.get(name) not in wanted:
            raise SpecError(f"{name}={settings[name]} is asked for, and softbench decodes greedily alone; drop it")
    unknown = set(settings) - set(_GREEDY) - _IGNORED_UNLESS_SAMPLING - {"until", "max_gen_toks", "max_new_tokens"}
    if unknown:
        raise SpecError(f"generation setting {min(unknown)!r} is unknown to softbench; drop it (--gen_kwargs)")
    until = settings.get("until") or ()
    count = settings.get("max_gen_toks", settings.get("max_new_tokens", _MAX_GEN_TOKS))
    return int(count), (until,) if isinstance(until, str) else tuple(one for one in until if one)


def _whole_number(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise SpecError(f"{name} can't be {value!r}; give a whole number from 1, or auto")
    return number
