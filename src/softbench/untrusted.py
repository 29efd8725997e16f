"""Reads files that anybody may have written, YAML, JSON and tensors, so that nothing in them hides, grows or hangs.

A key that is given twice, NaN and infinities, names for parts of a document that stand for them again (a few lines of
those are longer, written out, than memory is), nesting too deep to be walked, and files that are no files are refused.
"""

import errno
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
import yaml
from numpy.typing import NDArray
from pydantic import ValidationError

MOST_YAML = 1 << 18
"""Bytes of the longest YAML file: a spec or a task of that size was not written by hand."""
DEEPEST = 64
"""How deep mappings and lists may stand in each other."""
MOST_DIGITS = 400


def read_text(path: Path, most: int | None = None) -> str:
    """The text of a file of `most` bytes at most. Raises OSError where it can't be read, ValueError where it is longer
    or is not UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The content of a file of `most` bytes at most. Raises OSError where it can't be read, ValueError where it is
    longer."""
    check_is_file(path)
    if most is not None and path.stat().st_size > most:
        raise ValueError(f"it has {path.stat().st_size:,} bytes, and {most:,} are the most")
    return path.read_bytes()


def check_is_file(path: Path) -> None:
    """Raise OSError at a pipe, a device or a socket: reading one may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, and a file is wanted")


def printable(value: str) -> str:
    """`value` as it is. Raises ValueError where it holds characters that do not show: some steer a terminal."""
    if not value.isprintable():
        raise ValueError(f"{value!r} holds characters that can't be printed; leave them out")
    return value


def complaint(error: ValueError) -> str:
    """What an error of pydantic's complains of first, `where: why`; of another error what it says."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join(filter(None, [".".join(str(part) for part in first["loc"]), first["msg"]]))


class Loader(yaml.SafeLoader):
    """Plain YAML without its traps."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node. Raises ComposerError at one that stands for another, or stands too deep."""
        if self.check_event(yaml.AliasEvent):
            raise self._refusal("names for parts (*name) are not read; write the part out")
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refusal(f"it is nested more than {DEEPEST} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refusal(self, why: str) -> yaml.composer.ComposerError:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # its stubs say nothing of it
        return yaml.composer.ComposerError(None, None, why, mark)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """The next mapping. Raises ComposerError where a key is given twice."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return node

    def construct_scalar(self, node: Any) -> Any:
        """A scalar's text. Raises ConstructorError at a number longer than any that is meant."""
        if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and len(node.value) > MOST_DIGITS:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number of {len(node.value):,} characters is too long", node.start_mark
            )
        return super().construct_scalar(node)


def load_yaml(text: str, loader: type[Loader] = Loader) -> Any:
    """What `text` says. Raises ValueError, in one line, where it is no YAML or has one of its traps."""
    try:
        value = yaml.load(text, loader)  # a SafeLoader
        json.dumps(value, ensure_ascii=False, default=str).encode()  # half a surrogate pair is no text
    except Exception as error:  # PyYAML's constructors raise whatever their conversions do
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    return value


def load_json(text: str | bytes) -> Any:
    """What `text` says. Raises ValueError where it is no JSON or has one of its traps."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
        check_depth(value)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # half a surrogate pair is no text
    except RecursionError as error:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from error
    return value


def check_keys(text: bytes) -> None:
    """Raise ValueError where JSON has a key twice in one place, or NaN: readers differ in what they make of these."""
    json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)


def load_tensors(data: bytes) -> dict[str, NDArray[Any]]:
    """The tensors in a safetensors file's content. Raises ValueError where it is damaged."""
    try:
        tensors: dict[str, NDArray[Any]] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"no whole safetensors file: {str(error) or type(error).__name__}") from error
    return tensors


def check_depth(value: Any) -> None:
    """Raise ValueError where lists and mappings stand deeper in each other than DEEPEST."""
    level: Sequence[Any] = [value]
    for _ in range(DEEPEST + 1):
        inner = [one for one in level if isinstance(one, dict | list)]
        if not inner:
            return
        level = [child for one in inner for child in (one.values() if isinstance(one, dict) else one)]
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _), *_] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {name!r} is given twice")
    return found
