"""A display of our own in place of transformers' bars, whichever of them its version has."""

import contextlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from softbench.models import load_model
from softbench.watching import percent, watching

gguf: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")


def test_a_load_is_heard_of_to_its_end_and_shows_no_bar(
    tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    transformers.utils.logging.enable_progress_bar()
    folder, shares = tiny_folder("llama"), list[float]()
    capsys.readouterr()
    with watching(shares.append):
        transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert capsys.readouterr().err == ""


def test_what_was_there_is_put_back_after_an_error() -> None:
    before = gguf.tqdm
    with contextlib.suppress(KeyboardInterrupt), watching(lambda share: None):
        assert gguf.tqdm is not before
        raise KeyboardInterrupt
    assert gguf.tqdm is before
    assert transformers.utils.logging.set_tqdm_hook(None) is None


def test_versions_of_transformers_without_such_loops_load_all_the_same(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(transformers.utils.logging, "set_tqdm_hook")
    monkeypatch.delattr(gguf, "tqdm")
    with watching(lambda share: None):
        pass
    assert not hasattr(gguf, "tqdm")
    monkeypatch.setitem(sys.modules, gguf.__name__, None)  # importing it raises ImportError
    with watching(lambda share: None):
        pass
    assert load_model(str(tiny_folder("llama")), "float32", "cpu").info.num_parameters > 0


def test_a_display_of_percents_never_goes_back() -> None:
    shown: list[int] = []
    to = percent(lambda amount, detail="": shown.append(amount))
    for share in (0.1, 0.1, 0.05, 0.5, 1.0):
        to(share)
    assert shown == [10, 40, 50]
