"""What to run: read from YAML or built from flags, checked once, here."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from softbench.errors import SpecError, did_you_mean
from softbench.files import safe_name
from softbench.types import ChatSettings, Formulation, Labels, LossOn, Options
from softbench.untrusted import MOST_YAML, load_yaml, printable, read_text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _usable(path: Path) -> Path:
    printable(str(path))
    return path.expanduser()


def data_dir_of_environment() -> Path | None:
    """The data root that SOFTBENCH_DATA names, if it does."""
    return Path(os.environ["SOFTBENCH_DATA"]) if os.environ.get("SOFTBENCH_DATA") else None


Folder = Annotated[Path, AfterValidator(_usable)]
Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(printable)]
Count = Annotated[int, Field(ge=1, strict=True)]


class ModelSpec(_Strict):
    """A model: a folder, a `.gguf` file or a hub id; `name` is what results call it (default: the end of `source`).

    `parameters` is how many it has, for an estimate of a run where its configuration is not at hand.
    """

    source: Text
    revision: Text | None = None
    name: Text | None = None
    parameters: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(None, exclude=True)

    @property
    def label(self) -> str:
        """The model's name in results."""
        return self.name or self.source.rstrip("/").rpartition("/")[2].removesuffix(".gguf") or "model"


class ZeroShotSpec(_Strict):
    """Instruction and question alone."""

    kind: Literal["zero_shot"] = "zero_shot"
    options: Options = "given"


class FewShotSpec(_Strict):
    """Worked examples before the question."""

    kind: Literal["few_shot"] = "few_shot"
    num_fewshot: Count = 5
    sampling: Literal["random", "fixed", "balanced"] = "random"
    options: Options = "given"


class _Tuned(_Strict):
    """What every soft prompt is tuned with. Defaults: docs/learning_rate.md."""

    num_virtual_tokens: Count = 10
    steps: Count = 80
    batch_size: Count = 8
    learning_rate: float = Field(0.1, gt=0, allow_inf_nan=False)
    warmup_steps: int = Field(5, ge=0, strict=True)
    init: Literal["text", "vocab"] = "text"
    gradient_checkpointing: bool = False
    retry_lower_rate: bool = False


class SoftPromptSpec(_Tuned):
    """A tuned soft prompt before the question.

    `checkpoints` are steps whose vectors are evaluated besides the last ones. Controls: `labels: shuffled` tunes on
    wrong answers, `loss_on: format` on no answers at all.
    """

    kind: Literal["soft_prompt"] = "soft_prompt"
    labels: Labels = "gold"
    loss_on: LossOn = "target"
    options: Options = "given"
    checkpoints: tuple[Annotated[int, Field(ge=0, strict=True)], ...] = ()
    early_stop: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.early_stop and self.checkpoints:
            raise ValueError("early_stop may end before a checkpoint; drop one of the two")
        if any(step >= self.steps for step in self.checkpoints):
            raise ValueError(f"checkpoints {list(self.checkpoints)} must come before the last of {self.steps} steps")
        return self


class LoadedPromptSpec(_Strict):
    """A soft prompt from a folder, tuned on this task or another one of the same answer format."""

    kind: Literal["loaded_prompt"] = "loaded_prompt"
    soft_prompt: Folder
    options: Options = "given"


class MajoritySpec(_Strict):
    """The commonest answer of the tuning split to every question, without a model."""

    kind: Literal["majority"] = "majority"


class RandomModelSpec(_Tuned):
    """A soft prompt tuned on a model of the same architecture with random weights: what vectors alone can do."""

    kind: Literal["random_model"] = "random_model"


class LoraSpec(_Strict):
    """A low-rank adapter on the same samples (Train-before-Test, arXiv 2507.05195); `learning_rate` is AdamW's."""

    kind: Literal["lora"] = "lora"
    rank: Count = 8
    alpha: Count = 32
    steps: Count = 80
    batch_size: Count = 8
    learning_rate: float = Field(2e-5, gt=0, allow_inf_nan=False)
    warmup_steps: int = Field(5, ge=0, strict=True)
    labels: Labels = "gold"
    retry_lower_rate: bool = False


MethodSpec = Annotated[
    ZeroShotSpec | FewShotSpec | SoftPromptSpec | LoadedPromptSpec | MajoritySpec | RandomModelSpec | LoraSpec,
    Field(discriminator="kind"),
]
METHOD_SPECS: dict[str, type[BaseModel]] = {
    "zero_shot": ZeroShotSpec,
    "few_shot": FewShotSpec,
    "soft_prompt": SoftPromptSpec,
    "loaded_prompt": LoadedPromptSpec,
    "majority": MajoritySpec,
    "random_model": RandomModelSpec,
    "lora": LoraSpec,
}
DEFAULT_METHODS = ("zero_shot", "few_shot", "soft_prompt")


class Spec(_Strict):
    """A whole run: every model on every task by every method with every seed."""

    models: tuple[ModelSpec, ...] = Field(min_length=1)
    tasks: tuple[str, ...] = Field(min_length=1)
    formulation: Formulation | None = None
    answer_format: Text | None = None
    include_path: Folder | None = None
    methods: tuple[MethodSpec, ...] = Field((ZeroShotSpec(), FewShotSpec(), SoftPromptSpec()), min_length=1)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...] = Field((0,), min_length=1)
    limit: Count | None = None
    output_path: Folder = Path("softbench_out")
    apply_chat_template: bool = False
    system_instruction: str | None = None
    fewshot_as_multiturn: bool = False
    assistant_prefix: str | None = None
    data_dir: Folder | None = Field(default_factory=data_dir_of_environment)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    device_map: Literal["auto", "balanced", "sequential"] | None = None
    engine: Literal["transformers", "vllm", "fake"] = "transformers"
    eval_batch_size: Count = 64
    pmi: bool = False
    tune_together: bool = False
    deterministic: bool = False
    # Where jobs are done changes no result: results files don't hold it.
    executor: Literal["serial", "ray"] = Field("serial", exclude=True)
    ray_address: Text | None = Field(None, exclude=True)
    num_gpus: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)] | None = Field(None, exclude=True)
    num_cpus: Count | None = Field(None, exclude=True)
    memory: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] | None = Field(None, exclude=True)

    @property
    def chat(self) -> ChatSettings | None:
        """How prompts become conversations, if they do."""
        if not self.apply_chat_template:
            return None
        return ChatSettings(self.system_instruction or "", self.fewshot_as_multiturn, self.assistant_prefix or "")

    @model_validator(mode="after")
    def _chat_settings_need_a_chat(self) -> Self:
        for name in ("system_instruction", "fewshot_as_multiturn", "assistant_prefix"):
            if getattr(self, name) and not self.apply_chat_template:
                raise ValueError(f"{name!r} is given without 'apply_chat_template'; add it (--apply-chat-template)")
        return self

    @model_validator(mode="after")
    def _requests_need_ray(self) -> Self:
        for name in ("ray_address", "num_gpus", "num_cpus", "memory"):
            if getattr(self, name) is not None and self.executor != "ray":
                raise ValueError(f"{name!r} is given without executor 'ray'; add it (--executor ray)")
        if self.num_gpus is not None and self.num_gpus > 1 and self.num_gpus % 1:
            raise ValueError(f"'num_gpus' can't be {self.num_gpus}; give a whole number, or a part of one GPU")
        return self

    @model_validator(mode="after")
    def _vllm_runs_models_as_they_are(self) -> Self:
        other = next((method.kind for method in self.methods if method.kind in ("lora", "random_model")), None)
        if self.engine == "vllm" and other is not None:
            raise ValueError(f"method {other!r} changes weights, and vLLM runs a model as it is; run it without vllm")
        if self.engine == "vllm" and self.deterministic:
            raise ValueError("vLLM has kernels of its own, which may not be deterministic; drop one of the two")
        return self

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        labels = [safe_name(model.label) for model in self.models]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise ValueError(f"two models would be called {twice!r}; give one a 'name' of its own")
        return self


def read_spec(path: Path | None, overrides: Mapping[str, Any]) -> Spec:
    """The spec in the YAML file `path` (none: an empty one), with `overrides` in place of what it says.

    Keys of `overrides` are Spec's, and besides `num_fewshot` and the settings of SoftPromptSpec, which go to every
    method that has them; `soft_prompt`, a folder, which adds a `loaded_prompt`; and `revisions`, at each of which every
    model is run. Values of None override nothing. Raises SpecError, naming the field, at anything impossible.
    """
    raw = _read_yaml(path) if path else {}
    given = {key: value for key, value in overrides.items() if value is not None}
    raw.update({key: given.pop(key) for key in list(given) if key in Spec.model_fields})
    if isinstance(raw.get("models"), list | tuple):
        raw["models"] = [{"source": one} if isinstance(one, str) else one for one in raw["models"]]
        raw["models"] = _at_revisions(raw["models"], given.pop("revisions", None))
    methods = raw.get("methods", list(DEFAULT_METHODS))
    if isinstance(methods, list | tuple):
        if "soft_prompt" in given:
            methods = [*methods, "loaded_prompt"]
        raw["methods"] = [_method(method, given) for method in methods]
        unused = [key for key in given if not any(key in method for method in raw["methods"])]
        if unused:
            flag = "--" + unused[0].replace("_", "-")
            raise SpecError(
                f"{flag} is given, but no method of this run uses it; drop it or add the method to --methods"
            )
    return _validate(Spec, raw)


def _at_revisions(models: list[Any], revisions: Sequence[str] | None) -> list[Any]:
    """Every model at every revision, named by both; the models as they are where no revisions are given."""
    if revisions is None or not all(
        isinstance(model, dict) and isinstance(model.get("source"), str) for model in models
    ):
        return models
    return [
        model | {"revision": revision, "name": f"{ModelSpec.model_construct(**model).label}-{revision}"}
        for model in models
        for revision in revisions
    ]


def _method(method: Any, overrides: Mapping[str, Any]) -> Any:
    """A method as a mapping with its kind, and the overrides that it has a setting for."""
    method = {"kind": method} if isinstance(method, str) else method
    if not isinstance(method, dict) or not isinstance(method.get("kind"), str):
        raise SpecError(f"a method is a name or a mapping with a 'kind', not {method!r}")
    if method["kind"] not in METHOD_SPECS:
        raise SpecError(f"method {method['kind']!r} is unknown{did_you_mean(method['kind'], METHOD_SPECS)}")
    # An adapter's learning rate is in units of its own.
    fields = set(METHOD_SPECS[method["kind"]].model_fields) - ({"learning_rate"} if method["kind"] == "lora" else set())
    return method | {key: value for key, value in overrides.items() if key in fields}


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        value = load_yaml(read_text(path, MOST_YAML))
    except FileNotFoundError:
        raise SpecError(f"spec file {str(path)!r} does not exist; give a YAML file, or --model and --tasks") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"spec file {str(path)!r} can't be read: {error}") from error
    except ValueError as error:
        raise SpecError(f"spec file {str(path)!r} is not YAML: {error}") from error
    if not isinstance(value, dict):
        raise SpecError(f"spec file {str(path)!r} must hold a mapping such as 'tasks: [capitals]'")
    return {str(key): one for key, one in value.items()}


def _validate(kind: type[Spec], raw: Mapping[str, Any]) -> Spec:
    try:
        return TypeAdapter(kind).validate_python(dict(raw))
    except ValidationError as error:
        raise SpecError(_message(error)) from error


def _message(error: ValidationError) -> str:
    """One complaint in one line: where, what came, what was wanted."""
    # A misspelt key often makes another one missing: the misspelling is what to mend.
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    # A discriminated union puts the chosen kind into the path, right behind the index: not a place in the user's file.
    places = [part for place, part in enumerate(first["loc"]) if not (place == 2 and part in METHOD_SPECS)]
    where = ".".join(str(part) for part in places)
    if first["type"] == "extra_forbidden":
        known = _fields_at(first["loc"])
        return f"key {where!r} is unknown{did_you_mean(str(places[-1]), known)}"
    if first["type"] == "missing":
        return f"{where!r} is missing; give it in the spec file or as a flag (--model, --tasks)"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    wanted = first["msg"].replace("Input", "it").replace("a valid tuple", "a list")
    return f"{where!r} can't be {first['input']!r}: {wanted}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    if location[0] == "methods" and len(location) > 3:
        return list(METHOD_SPECS[str(location[2])].model_fields)
    return list(ModelSpec.model_fields if location[0] == "models" and len(location) > 1 else Spec.model_fields)
