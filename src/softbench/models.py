"""Finds and loads a frozen causal language model: from a folder, a GGUF file or the hub."""

import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import chat_template_utils

from softbench.errors import ModelError, first_line
from softbench.sandbox import ImmutableBoundedEnvironment, full_budget
from softbench.types import SILENT, Message, ModelInfo, Progress
from softbench.untrusted import check_is_file, load_json, read_text
from softbench.watching import OnPart, percent, watching

_MOST_LAYERS = 10_000
_SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class LoadedModel:
    """A frozen model with its tokenizer and what softbench needs to know of both.

    `bos_id` is None where the tokenizer puts nothing before a text; `eos_ids` are all tokens that end a completion;
    `embedding_rms` is the root mean square of the input-embedding module's output, over a sample of the vocabulary.
    """

    model: Any
    tokenizer: Any
    info: ModelInfo
    bos_id: int | None
    eos_ids: tuple[int, ...]
    embedding_rms: float

    @property
    def device(self) -> torch.device:
        """Where the input embeddings live."""
        return torch.device(self.embed.weight.device)

    @property
    def cache_argument(self) -> str:
        """What the model calls its key-value cache, going in and coming out: transformers 5 renamed it on the way."""
        parameters = inspect.signature(self.model.forward).parameters
        return "cache" if "cache" in parameters else "past_key_values"

    @property
    def embed(self) -> Any:
        """The input-embedding module; its *output* is what a soft prompt stands among (Gemma scales inside it)."""
        return self.model.get_input_embeddings()


def load_model(
    source: str,
    dtype: str = "auto",
    device: str = "auto",
    revision: str | None = None,
    name: str | None = None,
    device_map: str | None = None,
    deterministic: bool = False,
    progress: Progress = SILENT,
) -> LoadedModel:
    """Load `source` (a folder, a `.gguf` file or a hub id) for evaluation, frozen; results call it `name`.

    With `device_map` (auto, balanced, sequential) accelerate spreads its layers over all GPUs, in place of `device`.
    `deterministic` is for this process as a whole: see compute_deterministically. Raises ModelError where the model is
    missing, not a causal language model, stored in pickle files only, or too large.
    """
    if deterministic:
        compute_deterministically()
    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch_device = pick_device(device)
    torch_dtype = pick_dtype(dtype, torch_device)
    folder, files, revision, known = _locate(source, revision, progress)
    with progress.track(f"load {name or source} (%)", 100) as advance, _told(source):
        done = percent(advance)
        # Weights go through memory twice: to the model, and through the hash.
        with watching(lambda share: done(0.5 * share)):
            model, tokenizer = _read(folder, source, torch_dtype, device_map)
        if device_map is None:
            _place(model, torch_device)
            placed = str(torch_device)
        else:
            placed = _spread_over(model, source)
        check_usable(model, tokenizer, source)
        fingerprint = known or _fingerprint(folder, lambda share: done(0.5 + 0.5 * share))
        info = _describe(model, source)
        done(1.0)
    info = dataclasses.replace(
        info,
        name=name or Path(source).name.removesuffix(".gguf"),
        fingerprint=fingerprint,
        revision=revision,
        dtype=_name_of(torch_dtype),
        device=placed,
        files=files,
        num_threads=torch.get_num_threads() if deterministic else None,
    )
    with _told(source):
        return wrap_model(model, tokenizer, info)


def outline_model(source: str) -> LoadedModel | None:
    """The model in `source`, a folder or a `.gguf` file, without its weights: to count with, not to run.

    None where the folder has no configuration or tokenizer, or the file was not converted yet. Raises ModelError where
    what is there can't be read.
    """
    transformers.utils.logging.set_verbosity_error()
    folder = Path(source).expanduser()
    if folder.is_file():
        [digest] = _hashes([folder], lambda share: None)
        folder = _folder_of_gguf(folder, digest)
    if not (folder / "config.json").exists() or not any(folder.glob("token*")):
        return None
    with _told(source):
        _check_files(folder, source)
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        _check_causal(config, source)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        info = _describe(model, source)
        return LoadedModel(model, tokenizer, info, _bos_id(tokenizer), _eos_ids(model, tokenizer), 0.0)


@contextmanager
def _told(source: str) -> Iterator[None]:
    """Whatever transformers, safetensors and tokenizers raise on damaged files, and they raise many kinds, as a
    ModelError."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"model {source!r} can't be read: {first_line(error)}") from error


def _describe(model: Any, source: str) -> ModelInfo:
    """What a model's configuration says of it; its weights may lie on no device."""
    embeddings = {id(module.weight): module.weight for module in (model.get_input_embeddings(), _head(model, source))}
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    num_rows, hidden_size = model.get_input_embeddings().weight.shape
    return ModelInfo(
        name=Path(source).name,
        source=source if _is_hub_id(source) else Path(source).name,
        fingerprint="",
        revision=None,
        dtype=_name_of(model.dtype),
        device=str(model.device),
        num_parameters=num_parameters,
        num_body_parameters=num_parameters - sum(weight.numel() for weight in embeddings.values()),
        hidden_size=int(hidden_size),
        vocab_size=int(num_rows),
        max_length=int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30),
    )


def compute_deterministically() -> None:
    """From here on this process computes with deterministic kernels alone, and torch raises where there is none.

    The number of threads stays as it is: sums are cut where threads are.
    """
    # cuBLAS reads it when a first GPU is used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(torch.get_num_threads())


def check_usable(model: Any, tokenizer: Any, source: str) -> None:
    """Raise ModelError unless `model` can be scored by embeddings with padding on the right and can end a completion.

    Two short passes of two rows show it: embeddings must give the logits that token ids give (some architectures look
    ids up again further up), and what stands behind a token must not change its logits (bidirectional ones do).
    """
    if not _eos_ids(model, tokenizer):
        raise ModelError(f"model {source!r} has no end token in tokenizer or generation config; completions need one")
    device = model.get_input_embeddings().weight.device
    first = torch.arange(8, device=device) % len(tokenizer)
    ids = torch.stack([first, first])
    ids[1, 4:] = ids[0, 4:].flip(0)
    with torch.no_grad():
        by_ids = model(input_ids=ids).logits.float()
        by_embeddings = model(inputs_embeds=model.get_input_embeddings()(ids)).logits.float()
    if bool(by_ids.isnan().any()) or not bool(by_ids.amax(dim=-1).isfinite().all()):
        advice = "try --dtype float32, or look" if model.dtype == torch.bfloat16 else "look"
        raise ModelError(
            f"model {source!r} gives logits that are no numbers (nan or infinite) in {_name_of(model.dtype)}; {advice} "
            "whether its weights are whole"
        )
    # Above what rounding does, below what another input does.
    allowed = (0.02 if model.dtype == torch.bfloat16 else 1e-4) * float(by_ids.std())
    if not float((by_ids - by_embeddings).abs().mean()) <= allowed:
        raise ModelError(
            f"model {source!r} ({type(model).__name__}) needs token ids beside embeddings: no soft prompt fits"
        )
    if not float((by_ids[0, :4] - by_ids[1, :4]).abs().mean()) <= allowed:
        raise ModelError(f"model {source!r} ({type(model).__name__}) is not causal: later tokens change earlier ones")


def wrap_model(model: Any, tokenizer: Any, info: ModelInfo) -> LoadedModel:
    """A LoadedModel around a transformers model and tokenizer that are already in memory."""
    embed = model.get_input_embeddings()
    num_rows = min(len(tokenizer), embed.weight.shape[0])
    ids = torch.arange(0, num_rows, max(1, num_rows // 4096), device=embed.weight.device)
    with torch.no_grad():
        rms = float(embed(ids).float().square().mean().sqrt())
    return LoadedModel(model, tokenizer, info, _bos_id(tokenizer), _eos_ids(model, tokenizer), rms)


def with_random_weights(model: LoadedModel, seed: int) -> LoadedModel:
    """A model of the same architecture that has learned nothing: its weights as their initialisation draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model.model)(model.model.config)
    fresh.generation_config = model.model.generation_config
    _place(fresh.to(model.model.dtype), model.device)
    info = dataclasses.replace(model.info, fingerprint=f"random:{seed}:{model.info.fingerprint}")
    return dataclasses.replace(wrap_model(fresh, model.tokenizer, info), bos_id=model.bos_id)


@dataclass(frozen=True, slots=True)
class TokenizerChatTemplate:
    """The chat template that comes with a tokenizer."""

    tokenizer: Any
    bos: str

    @property
    def hash(self) -> str:
        """Hash of the template's source and of what it writes: some write today's date."""
        turns: list[Message] = [{"role": "user", "content": "a"}]
        text = f"{self.tokenizer.chat_template}{self.render(turns, open_reply=True)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def render(self, messages: Sequence[Message], open_reply: bool) -> str:
        """The conversation's text without BOS. Raises ModelError where the template refuses it."""
        try:
            with _bounded_templates():
                text = self.tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=open_reply, continue_final_message=False
                )
        except Exception as error:  # a template may raise whatever it likes, such as "System role not supported"
            raise ModelError(f"the model's chat template refuses the conversation: {error}") from error
        return str(text).removeprefix(self.bos)


@contextmanager
def _bounded_templates() -> Iterator[None]:
    """While this lasts, transformers renders chat templates in a sandbox that keeps them from running on and on."""
    full_budget()
    before = chat_template_utils._compile_jinja_template
    chat_template_utils._compile_jinja_template = _compile_bounded
    try:
        yield
    finally:
        chat_template_utils._compile_jinja_template = before


@functools.lru_cache(maxsize=16)
def _compile_bounded(source: str) -> Any:
    """What transformers makes of a chat template, with its own filters and functions, in the bounded sandbox."""
    module: Any = chat_template_utils
    before = module.ImmutableSandboxedEnvironment
    module.ImmutableSandboxedEnvironment = ImmutableBoundedEnvironment
    try:
        template = module._cached_compile_jinja_template(source)
    finally:
        module.ImmutableSandboxedEnvironment = before
    template.environment.add_filter("tojson", template.environment.filters["tojson"])
    full_budget()
    return template


def with_chat_template(model: LoadedModel) -> tuple[LoadedModel, TokenizerChatTemplate]:
    """The model's chat template, and the model with the BOS that the template asks for, once, at the row's start.

    Raises ModelError where the tokenizer has none.
    """
    if not model.tokenizer.chat_template:
        raise ModelError(f"model {model.info.name!r} has no chat template; drop --apply-chat-template")
    bos = str(model.tokenizer.bos_token or "")
    said = "softbench-question"
    text = TokenizerChatTemplate(model.tokenizer, "").render([{"role": "user", "content": said}], open_reply=True)
    if said not in text:
        raise ModelError(f"the chat template of model {model.info.name!r} leaves out what the user says; mend it")
    starts = bool(bos) and text.startswith(bos)
    bos_id = int(model.tokenizer.bos_token_id) if starts else None
    return dataclasses.replace(model, bos_id=bos_id), TokenizerChatTemplate(model.tokenizer, bos if starts else "")


def _is_hub_id(source: str) -> bool:
    return not Path(source).exists() and _HUB_ID.fullmatch(source) is not None


def _locate(
    source: str, revision: str | None, progress: Progress
) -> tuple[Path, dict[str, str], str | None, str | None]:
    """The folder with safetensors weights, the sha256 of the file it came from, the hub's commit, and the fingerprint
    of the folder where it is known."""
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(
                f"model {source!r} is a file but not a .gguf; give a model folder, a .gguf file or a hub id"
            )
        with progress.track(f"read {path.name} (%)", 100) as advance:
            [digest] = _hashes([path], percent(advance))
        folder, fingerprint = _converted_gguf(path, digest, progress)
        return folder, {path.name: digest}, None, fingerprint
    if path.is_dir():
        return path, {}, None, None
    if _is_hub_id(source):
        return *_snapshot(source, revision), None
    raise ModelError(f"model {source!r} is neither a folder, a .gguf file nor a hub id (owner/name); check the path")


def _snapshot(hub_id: str, revision: str | None) -> tuple[Path, dict[str, str], str]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
        # Some repositories hold the weights twice, consolidated or in a folder for another library.
        other = ["consolidated*", "*/*"]
        folder = Path(snapshot_download(hub_id, revision=revision, allow_patterns=patterns, ignore_patterns=other))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = first_line(error)
        raise ModelError(
            f"model {hub_id!r} is no folder here and the hub did not give it ({reason}); check the name, the network "
            "or HF_HUB_OFFLINE"
        ) from error
    return folder, {}, folder.name


def _read(folder: Path, source: str, dtype: torch.dtype, device_map: str | None) -> tuple[Any, Any]:
    if device_map is not None and importlib.util.find_spec("accelerate") is None:
        raise ModelError("a device map needs accelerate, which is not installed: pip install 'softbench[accelerate]'")
    if not (folder / "config.json").exists():
        raise ModelError(f"model folder {source!r} has no config.json; give the folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"model folder {source!r} has no *.safetensors; pickled weights are not read: convert them first"
        )
    _check_files(folder, source)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    _check_causal(config, source)
    model = _with_all_weights(source, folder, dtype, use_safetensors=True, device_map=device_map)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return model, tokenizer


def _with_all_weights(source: str, folder: Path, dtype: torch.dtype, **settings: Any) -> Any:
    """The model in a folder. Raises ModelError where weights are missing: transformers would go on with random ones."""
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, trust_remote_code=False, output_loading_info=True, **settings
    )
    model, loading = loaded
    missing = sorted(loading["missing_keys"])
    if missing:
        raise ModelError(f"model {source!r} lacks {len(missing)} of its weights, {missing[0]!r} first; get it again")
    return model


def _check_files(folder: Path, source: str) -> None:
    """Raise ModelError where what would be read of a folder is no file, or where settings are damaged: without some of
    them, such as end tokens, transformers goes on as if they were not there."""
    for path in _files_of(folder):
        try:
            check_is_file(path)
            if not path.is_file():
                raise OSError("it is a folder, or a link that leads nowhere")  # noqa: TRY301  # told with its name
            if path.name in _SETTINGS and not isinstance(load_json(read_text(path)), dict):
                raise ValueError("a mapping of names to values is wanted")  # noqa: TRY301
        except (OSError, ValueError) as error:
            said = error.strerror or error if isinstance(error, OSError) else error
            raise ModelError(f"model {source!r}: {path.name} can't be read: {said}; get the model again") from error


def _files_of(folder: Path) -> list[Path]:
    """All in `folder` that decides a model's answers: weights, configuration, tokenizer, template."""
    kept = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
    return sorted({path for pattern in kept for path in folder.glob(pattern) if path.name != _SOURCE})


def _check_causal(config: Any, source: str) -> None:
    if config.is_encoder_decoder or type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"model {source!r} is of type {config.model_type!r}; a decoder-only language model is wanted")
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > _MOST_LAYERS:
        raise ModelError(f"model {source!r} would have {layers!r} layers; {_MOST_LAYERS:,} are the most")


def _head(model: Any, source: str) -> Any:
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(f"model {source!r} ({type(model).__name__}) has no output head that softbench could read")
    return head


def _place(model: Any, device: torch.device) -> None:
    try:
        model.to(device).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:  # torch raises either where a device is not there or too small
        raise ModelError(f"the model can't be put on device {str(device)!r}: {str(error).splitlines()[0]}") from error


def _spread_over(model: Any, source: str) -> str:
    """The devices that hold a model's layers. Raises ModelError where some were left on the host or on disk."""
    model.eval().requires_grad_(False)
    devices = list(dict.fromkeys(map(str, _devices_of(model))))
    if len(devices) > 1 and {"cpu", "disk"} & set(devices):
        raise ModelError(
            f"model {source!r} does not fit the GPUs: a part would go to {devices[-1]}, through which nothing can be "
            "tuned; use more GPUs, --dtype bfloat16 or a quantised model"
        )
    return ",".join(devices)


def _devices_of(model: Any) -> list[Any]:
    placed = getattr(model, "hf_device_map", None) or {"": model.device}
    return [torch.device("cuda", one) if isinstance(one, int) else one for one in placed.values()]


def pick_device(device: str) -> torch.device:
    """The device of that name; auto: the first GPU where there is one. Raises ModelError at a name that is none."""
    if device != "auto":
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise ModelError(f"device {device!r} is unknown to torch; give auto, cpu, cuda, cuda:1 or mps") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 where the hardware multiplies in it, else float32 (emulated bfloat16 is slower than float32)."""
    if dtype == "auto":
        return torch.bfloat16 if has_bfloat16(device) else torch.float32
    if dtype not in ("float32", "bfloat16"):
        raise ModelError(f"dtype {dtype!r} is not offered; give auto, float32 or bfloat16")
    return torch.float32 if dtype == "float32" else torch.bfloat16


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 itself, as far as is known."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


def _bos_id(tokenizer: Any) -> int | None:
    """The token that the tokenizer itself puts before a text, if any."""
    ids = tokenizer("a").input_ids
    return int(ids[0]) if tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id] else None


def _eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """All end tokens: the generation config's (often several) and the tokenizer's; the tokenizer's own comes first."""
    from_config = model.generation_config.eos_token_id if model.generation_config else None
    listed = from_config if isinstance(from_config, list) else [from_config]
    ids = [one for one in (tokenizer.eos_token_id, *listed) if one is not None]
    if not all(type(one) is int for one in ids):
        raise ModelError(f"the model's end tokens are {ids}; numbers of tokens are wanted: mend eos_token_id")
    return tuple(dict.fromkeys(ids))


_SOURCE = "softbench_source.json"


def cache_folder() -> Path:
    """Where converted models are kept."""
    return Path(os.environ.get("SOFTBENCH_CACHE", Path.home() / ".cache" / "softbench"))


def _converted_gguf(path: Path, digest: str, progress: Progress) -> tuple[Path, str]:
    """The folder with `path`'s weights as float32 safetensors, and its fingerprint; made once, kept in the cache under
    the file's sha256, and made again where it is not as it was made."""
    cache, folder = cache_folder(), _folder_of_gguf(path, digest)
    kept = _kept_conversion(folder, path.name, progress)
    if kept is not None:
        return folder, kept
    try:
        if folder.exists():
            progress.note(f"{str(folder)!r} is not as it was made of {path.name}; it is made again")
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    except OSError as error:
        raise ModelError(f"the model cache {str(cache)!r} can't be written ({error}); set SOFTBENCH_CACHE") from error
    try:
        with progress.track(f"convert {path.name}, the first time (%)", 100) as advance:
            done = percent(advance)
            with watching(lambda share: done(0.8 * share)):
                _convert_gguf(path, partial)
            fingerprint = _fingerprint(partial, lambda share: done(0.8 + 0.2 * share))
            done(1.0)
        source = {"file": path.name, "sha256": digest, "fingerprint": fingerprint}
        (partial / _SOURCE).write_text(json.dumps(source), encoding="utf-8")
        partial.rename(folder)
    except ImportError as error:
        raise ModelError("reading a .gguf file needs the gguf package; pip install 'softbench[gguf]'") from error
    except Exception as error:  # of damaged files, transformers and gguf raise many kinds
        kept = _kept_conversion(folder, path.name, progress)
        if kept is not None:  # another process was first
            return folder, kept
        raise ModelError(f"{str(path)!r} can't be converted: {str(error).strip() or type(error).__name__}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder, fingerprint


def _kept_conversion(folder: Path, name: str, progress: Progress) -> str | None:
    """The fingerprint of a conversion in the cache; None where there is none, or one that is not as it was made."""
    try:
        source = load_json(read_text(folder / _SOURCE))
        _check_files(folder, name)
        with progress.track(f"check the conversion of {name} (%)", 100) as advance:
            found = _fingerprint(folder, percent(advance))
        # Those of earlier versions do not say what they were.
        return found if source.get("fingerprint", found) == found else None
    except (OSError, ValueError, AttributeError):  # ModelError is a ValueError
        return None


def _folder_of_gguf(path: Path, digest: str) -> Path:
    """Where the conversion of a `.gguf` file with this sha256 is kept."""
    return cache_folder() / "models" / f"{path.stem}-{digest[:16]}"


def _convert_gguf(path: Path, folder: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    model = _with_all_weights(path.name, path.parent, torch.float32, gguf_file=path.name)
    # A model read from GGUF refuses to be saved as it is: build a plain one of the same config around its weights.
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _fingerprint(folder: Path, on_part: OnPart) -> str:
    """Hash of everything in `folder` that decides a model's answers: weights, configuration, tokenizer, template."""
    paths = _files_of(folder)
    lines = (f"{path.name}:{digest}\n" for path, digest in zip(paths, _hashes(paths, on_part), strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _hashes(paths: Sequence[Path], on_part: OnPart) -> list[str]:
    """The sha256 of each file."""
    total, read, found = sum(path.stat().st_size for path in paths), 0, []
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
                read += len(part)
                on_part(read / total)
        found.append(digest.hexdigest())
    return found
