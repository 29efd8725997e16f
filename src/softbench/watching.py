"""How far transformers has come in the loops that it would show as tqdm bars, for a display of our own."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import transformers

from softbench.types import Advance

OnPart = Callable[[float], None]
"""Called with the share of some work that is done by now, between 0 and 1."""


def percent(advance: Advance) -> OnPart:
    """Moves a display of 100 units to a share of the work; never back."""
    shown = 0

    def to(share: float) -> None:
        nonlocal shown
        new = int(100 * share) - shown
        if new > 0:
            shown += new
            advance(new)

    return to


@contextmanager
def watching(on_part: OnPart) -> Iterator[None]:
    """While this lasts, transformers' loops over weights report to `on_part` and show no bars.

    A version of transformers that has no such loops, or other ones, tells nothing.
    """

    def watched(*args: Any, **keywords: Any) -> _Watched:
        return _Watched(on_part, args, keywords)

    set_hook = getattr(transformers.utils.logging, "set_tqdm_hook", None)  # older versions have none
    try:
        gguf: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    except ImportError:
        gguf = None
    with ExitStack() as undo:
        if set_hook is not None:
            undo.callback(set_hook, set_hook(lambda factory, args, keywords: watched(*args, **keywords)))
        if hasattr(gguf, "tqdm"):
            undo.callback(setattr, gguf, "tqdm", gguf.tqdm)
            gguf.tqdm = watched
        yield


class _Watched:
    """Stands where a tqdm bar would: iterates, counts, and does nothing else."""

    def __init__(self, on_part: OnPart, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._items = args[0] if args else keywords.get("iterable", ())
        self._total = keywords.get("total") or (len(self._items) if hasattr(self._items, "__len__") else 0)
        self._on_part = on_part
        self._done = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def __enter__(self) -> "_Watched":
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, count: int = 1) -> None:
        """So many more are done."""
        self._done += count
        if self._total:
            self._on_part(self._done / self._total)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None
