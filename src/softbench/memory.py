"""Running out of memory: how torch says so, and what is done before another try."""

import gc
import os

import torch

# How torch and the libraries below it put it on a CPU; CUDA has an error of its own.
_SAID = ("can't allocate memory", "std::bad_alloc", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that there is no memory left, on a GPU or on the host."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(one in str(error) for one in _SAID)


def free_memory() -> None:
    """Give back what a failed try left behind; to be called when its error is no longer held."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def total_memory(device: torch.device) -> int:
    """Bytes that the device has in all: what is free at the moment would batch otherwise from run to run."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
