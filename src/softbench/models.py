"""Finds and loads a frozen causal language model: from a folder, a GGUF file or the hub."""

import dataclasses
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from softbench.errors import ModelError, first_line
from softbench.types import Message, ModelInfo

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
) -> LoadedModel:
    """Load `source` (a folder, a `.gguf` file or a hub id) for evaluation, frozen; results call it `name`.

    With `device_map` (auto, balanced, sequential) accelerate spreads its layers over all GPUs, in place of `device`.
    Raises ModelError where it is missing, not a causal language model, stored in pickle files only, or too large.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, files, revision = _locate(source, revision)
    torch_device = _pick_device(device)
    torch_dtype = _pick_dtype(dtype, torch_device)
    model, tokenizer = _read(folder, source, torch_dtype, device_map)
    if device_map is None:
        _place(model, torch_device)
        placed = str(torch_device)
    else:
        placed = _spread_over(model, source)
    check_usable(model, tokenizer, source)
    text_config = model.config.get_text_config()
    embeddings = {id(module.weight): module.weight for module in (model.get_input_embeddings(), _head(model, source))}
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    info = ModelInfo(
        name=name or Path(source).name.removesuffix(".gguf"),
        source=source if _is_hub_id(source) else Path(source).name,
        fingerprint=_fingerprint(folder),
        revision=revision,
        dtype=str(torch_dtype).removeprefix("torch."),
        device=placed,
        num_parameters=num_parameters,
        num_body_parameters=num_parameters - sum(weight.numel() for weight in embeddings.values()),
        hidden_size=int(model.get_input_embeddings().weight.shape[1]),
        vocab_size=int(model.get_input_embeddings().weight.shape[0]),
        max_length=int(getattr(text_config, "max_position_embeddings", None) or 1 << 30),
        files=files,
    )
    return wrap_model(model, tokenizer, info)


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
            text = self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=open_reply, continue_final_message=False
            )
        except Exception as error:  # a template may raise whatever it likes, such as "System role not supported"
            raise ModelError(f"the model's chat template refuses the conversation: {error}") from error
        return str(text).removeprefix(self.bos)


def with_chat_template(model: LoadedModel) -> tuple[LoadedModel, TokenizerChatTemplate]:
    """The model's chat template, and the model with the BOS that the template asks for, once, at the row's start.

    Raises ModelError where the tokenizer has none.
    """
    if not model.tokenizer.chat_template:
        raise ModelError(f"model {model.info.name!r} has no chat template; drop --apply-chat-template")
    bos = str(model.tokenizer.bos_token or "")
    plain = TokenizerChatTemplate(model.tokenizer, "")
    starts = bool(bos) and plain.render([{"role": "user", "content": "a"}], open_reply=True).startswith(bos)
    bos_id = int(model.tokenizer.bos_token_id) if starts else None
    return dataclasses.replace(model, bos_id=bos_id), TokenizerChatTemplate(model.tokenizer, bos if starts else "")


def _is_hub_id(source: str) -> bool:
    return not Path(source).exists() and _HUB_ID.fullmatch(source) is not None


def _locate(source: str, revision: str | None) -> tuple[Path, dict[str, str], str | None]:
    """The folder with safetensors weights, the sha256 of the file it came from, and the hub's commit if any."""
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(
                f"model {source!r} is a file but not a .gguf; give a model folder, a .gguf file or a hub id"
            )
        digest = _sha256(path)
        return _converted_gguf(path, digest), {path.name: digest}, None
    if path.is_dir():
        return path, {}, None
    if _is_hub_id(source):
        return _snapshot(source, revision)
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
    if not (folder / "config.json").is_file():
        raise ModelError(f"model folder {source!r} has no config.json; give the folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"model folder {source!r} has no *.safetensors; pickled weights are not read: convert them first"
        )
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        _check_causal(config, source)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, device_map=device_map
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and tokenizers raise many kinds on damaged files
        reason = first_line(error)
        raise ModelError(f"model folder {source!r} can't be read: {reason}") from error
    return model, tokenizer


def _check_causal(config: Any, source: str) -> None:
    if config.is_encoder_decoder or type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"model {source!r} is of type {config.model_type!r}; a decoder-only language model is wanted")


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


def _pick_device(device: str) -> torch.device:
    if device != "auto":
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise ModelError(f"device {device!r} is unknown to torch; give auto, cpu, cuda, cuda:1 or mps") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 where the hardware multiplies in it, else float32 (emulated bfloat16 is slower than float32)."""
    if dtype == "auto":
        native = (
            torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else _cpu_has_bfloat16()
        )
        return torch.bfloat16 if native and device.type in ("cpu", "cuda") else torch.float32
    if dtype not in ("float32", "bfloat16"):
        raise ModelError(f"dtype {dtype!r} is not offered; give auto, float32 or bfloat16")
    return torch.float32 if dtype == "float32" else torch.bfloat16


def _cpu_has_bfloat16() -> bool:
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
    return tuple(dict.fromkeys(int(one) for one in (tokenizer.eos_token_id, *listed) if one is not None))


_SOURCE = "softbench_source.json"


def _converted_gguf(path: Path, digest: str) -> Path:
    """The folder with `path`'s weights as float32 safetensors; made once, kept in the cache under the file's sha256."""
    cache = Path(os.environ.get("SOFTBENCH_CACHE", Path.home() / ".cache" / "softbench"))
    folder = cache / "models" / f"{path.stem}-{digest[:16]}"
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    except OSError as error:
        raise ModelError(f"the model cache {str(cache)!r} can't be written ({error}); set SOFTBENCH_CACHE") from error
    try:
        _convert_gguf(path, partial)
        (partial / _SOURCE).write_text(json.dumps({"file": path.name, "sha256": digest}))
        partial.rename(folder)
    except ImportError as error:
        raise ModelError("reading a .gguf file needs the gguf package; pip install 'softbench[gguf]'") from error
    except (OSError, ValueError, RuntimeError, KeyError, IndexError, NotImplementedError) as error:
        if (folder / "config.json").is_file():  # another process was first
            return folder
        raise ModelError(f"{str(path)!r} can't be converted: {str(error).strip() or type(error).__name__}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert_gguf(path: Path, folder: Path) -> None:
    location: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**location)
    model = transformers.AutoModelForCausalLM.from_pretrained(**location, dtype=torch.float32)
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


def _fingerprint(folder: Path) -> str:
    """Hash of everything in `folder` that decides a model's answers: weights, configuration, tokenizer, template."""
    kept = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
    paths = sorted({path for pattern in kept for path in folder.glob(pattern) if path.name != _SOURCE})
    return hashlib.sha256("".join(f"{path.name}:{_sha256(path)}\n" for path in paths).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
