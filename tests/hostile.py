"""Files of every kind that softbench reads, and ways to damage them: the corpus of tests/e2e/test_hostile.py.

Nothing is committed: a workshop with one good file of each kind is made on the spot, and each input is one of these
files with one damage done to it, drawn by a seed.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import psutil
import safetensors.numpy
from gguf import GGUFWriter, TokenType

import softbench.cli
from softbench.methods.peft_format import export_peft
from softbench.methods.soft_prompt import save_soft_prompt
from softbench.models import load_model
from softbench.pipeline import run
from softbench.spec import read_spec
from softbench.types import SILENT, Advance, Silence, SoftPrompt
from tests.tiny import save_tiny_model

MOST_MEMORY = 3 << 30
WRITTEN = ("new", "again", "state", "cache", "hf")
"""Where the commands of KINDS write."""

Form = Literal["yaml", "json", "jsonl", "csv", "binary", "tensors", "template", "lock"]
Damage = Callable[[Path, random.Random], None]

QUIZ = "task: quiz\ndata: quiz.{}\nquestion: 'Question: {{{{ q }}}}'\nanswers: a\n"
CHOICES = "task: choose\ndata: choose.jsonl\nquestion: 'Question: {{ q }}'\noptions: options\ngold: gold\n"
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)
HARNESS = (
    "task: theirs\ndataset_path: json\ndataset_kwargs: {data_files: {train: harness_train.jsonl, test: "
    "harness_test.jsonl}}\ntraining_split: train\ntest_split: test\noutput_type: generate_until\n"
    'doc_to_text: "Question: {{q}}"\ndoc_to_target: "{{a}}"\ngeneration_kwargs: {until: ["\\n"]}\n'
    "metric_list: [{metric: exact_match}]\nfilter_list: [{name: first, filter: [{function: regex, "
    "regex_pattern: '(.+)'}, {function: take_first}]}]\n"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: which of the workshop's files it is (a glob), how it is written, and what commands read it."""

    name: str
    file: str
    form: Form
    commands: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


_FAKE = "run --engine fake --model m --methods zero_shot --limit 4 --output-path new"
_TINY = "run --model tiny --dtype float32 --device cpu --methods zero_shot --limit 1 --output-path new"
_AGAIN = "run again.yaml"
_READERS = (
    "score out/m",
    "compare out/m@zero_shot out/m@few_shot",
    "report out --format csv --output-path new",
    "curve out/m",
)

KINDS = (
    Kind("task", "quiz.yaml", "yaml", ("tasks check quiz.yaml", f"{_FAKE} --tasks quiz.yaml")),
    Kind("task of options", "choose.yaml", "yaml", ("tasks show choose.yaml", "tasks check choose.yaml")),
    Kind(
        "folder of tasks", "mine/quiz.yaml", "yaml", (f"{_FAKE} --tasks quiz --include-path mine", "tasks check mine")
    ),
    Kind("task of the harness", "harness.yaml", "yaml", (f"{_FAKE} --tasks harness.yaml", "tasks check harness.yaml")),
    Kind("data of the harness", "harness_test.jsonl", "jsonl", ("tasks check harness.yaml",)),
    Kind("data, JSONL", "quiz.jsonl", "jsonl", (f"{_FAKE} --tasks quiz.yaml", "tasks check quiz.yaml")),
    Kind("data, JSON", "quiz.json", "json", (f"{_FAKE} --tasks quiz_json.yaml",)),
    Kind("data, CSV", "quiz.csv", "csv", (f"{_FAKE} --tasks quiz_csv.yaml",)),
    Kind("data, Parquet", "quiz.parquet", "binary", (f"{_FAKE} --tasks quiz_parquet.yaml",)),
    Kind("data of options", "choose.jsonl", "jsonl", ("tasks check choose.yaml",)),
    Kind("data root", "root/arc_easy/test.jsonl", "jsonl", (f"{_FAKE} --tasks arc_easy --data-dir root",)),
    Kind("spec", "spec.yaml", "yaml", ("run spec.yaml", "estimate spec.yaml")),
    Kind(
        "mapping",
        "mapping.yaml",
        "yaml",
        ("rank many/a many/b many/c --post many/a --post many/b --post many/c --mapping mapping.yaml",),
    ),
    Kind("model, configuration", "tiny/config.json", "json", (f"{_TINY} --tasks capitals", "estimate tiny.yaml")),
    Kind("model, end tokens", "tiny/generation_config.json", "json", (f"{_TINY} --tasks capitals",)),
    Kind("model, tokenizer", "tiny/tokenizer.json", "json", (f"{_TINY} --tasks capitals", "estimate tiny.yaml")),
    Kind("model, tokenizer's settings", "tiny/tokenizer_config.json", "json", (f"{_TINY} --tasks capitals",)),
    Kind("model, weights", "tiny/model.safetensors", "tensors", (f"{_TINY} --tasks capitals",)),
    Kind(
        "chat template",
        "tiny/chat_template.jinja",
        "template",
        (f"{_TINY} --tasks capitals --apply-chat-template", "estimate tiny.yaml --apply-chat-template"),
    ),
    Kind("GGUF", "tiny.gguf", "binary", (f"{_TINY.replace('tiny', 'tiny.gguf', 1)} --tasks capitals",)),
    Kind(
        "cache, configuration",
        "cache/models/*/config.json",
        "json",
        (f"{_TINY.replace('tiny', 'tiny.gguf', 1)} --tasks capitals",),
    ),
    Kind(
        "cache, weights",
        "cache/models/*/model.safetensors",
        "tensors",
        (f"{_TINY.replace('tiny', 'tiny.gguf', 1)} --tasks capitals",),
    ),
    Kind(
        "soft prompt",
        "prompt/soft_prompt.safetensors",
        "tensors",
        (f"{_TINY} --tasks capitals --soft-prompt prompt", "export-peft prompt new --model tiny"),
    ),
    Kind(
        "soft prompt, card",
        "prompt/soft_prompt.json",
        "json",
        (f"{_TINY} --tasks capitals --soft-prompt prompt", "export-peft prompt new --model tiny"),
    ),
    Kind(
        "PEFT's adapter",
        "adapter/adapter_model.safetensors",
        "tensors",
        (f"{_TINY} --tasks capitals --soft-prompt adapter",),
    ),
    Kind(
        "PEFT's adapter, configuration",
        "adapter/adapter_config.json",
        "json",
        (f"{_TINY} --tasks capitals --soft-prompt adapter",),
    ),
    Kind("results", "out/m/results_*.json", "json", _READERS),
    Kind(
        "records",
        "out/m/jobs/*zero_shot*/records.jsonl",
        "jsonl",
        ("score out/m", "report out --format csv --output-path new"),
    ),
    Kind("records of a run", "again/m/jobs/*zero_shot*/records.jsonl", "jsonl", (_AGAIN,)),
    Kind("costs of a run", "again/m/jobs/*zero_shot*/cost.json", "json", (_AGAIN,)),
    Kind("tuned vectors of a run", "again/m/tuned/*soft_prompt*/soft_prompt.safetensors", "tensors", (_AGAIN,)),
    Kind("tuned vectors of a run, card", "again/m/tuned/*soft_prompt*/soft_prompt.json", "json", (_AGAIN,)),
    Kind("tuned adapter of a run", "again/m/tuned/*lora*/adapter.safetensors", "tensors", (_AGAIN,)),
    Kind("tuned adapter of a run, card", "again/m/tuned/*lora*/adapter.json", "json", (_AGAIN,)),
    Kind("card for a tracker", "out/m/tuned/*soft_prompt*/soft_prompt.json", "json", ("log out/m --to trackio",)),
    Kind("state of a tuning", "state/tiny/tuned/*/state.safetensors", "tensors", ("run state.yaml",)),
    Kind("lock of a run", "again/m/.lock", "lock", (_AGAIN,)),
)


@dataclass(frozen=True, slots=True)
class Input:
    """One bad input: a kind of file with one damage done to it, and the command that is given it."""

    kind: Kind
    damage: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind.name}, {self.damage}"

    @property
    def command(self) -> list[str]:
        """The command's words; the commands of a kind take turns."""
        return self.kind.commands[self.number % len(self.kind.commands)].split()

    def do(self, workshop: Path) -> None:
        """Damage the file in a workshop."""
        damages_of(self.kind)[self.damage](file_of(self.kind, workshop), random.Random(str(self)))


def file_of(kind: Kind, workshop: Path) -> Path:
    """The file of that kind in a workshop."""
    found = [*workshop.glob(kind.file)] or [workshop / kind.file]
    assert len(found) == 1, kind
    return found[0]


def corpus() -> list[Input]:
    """Every kind of file with every damage that can be done to it."""
    return [Input(kind, damage, number) for kind in KINDS for number, damage in enumerate(damages_of(kind))]


def damages_of(kind: Kind) -> dict[str, Damage]:
    """The damages that can be done to files of a kind."""
    own = {name: damage for name, (kinds, damage) in _OWN.items() if kind.name in kinds}
    if kind.form == "lock":  # what is in it does not count
        return {name: _ANY[name] for name in ("a folder", "a pipe", "a device without end", "a link out")}
    return _ANY | _OF_FORM[kind.form] | own


# Damages of any file.


def _truncated(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(1, max(2, len(data) - 1))])


def _flipped(path: Path, draw: random.Random) -> None:
    """The highest bit of one of the first bytes: it makes text no UTF-8, and a header another one."""
    data = bytearray(path.read_bytes() or b"a")
    place = draw.randrange(min(len(data), 60))
    data[place] ^= 0x80
    path.write_bytes(bytes(data))


def _as_folder(path: Path, draw: random.Random) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "a").touch()


def _as_pipe(path: Path, draw: random.Random) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _linked(target: str) -> Damage:
    def link(path: Path, draw: random.Random) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return link


def _linked_out(path: Path, draw: random.Random) -> None:
    """A link to a file beside the workshop, which is nobody's business and must stay as it is."""
    path.unlink(missing_ok=True)
    path.symlink_to(secret_beside(_workshop_of(path)))


def _workshop_of(path: Path) -> Path:
    return next(folder for folder in path.parents if (folder / "quiz.yaml").is_file() or (folder / "root").is_dir())


def secret_beside(workshop: Path) -> Path:
    """A file that no input may lead to: neither its words nor a write."""
    return workshop.parent / "secret.txt"


def _written(data: Callable[[bytes, random.Random], bytes]) -> Damage:
    def write(path: Path, draw: random.Random) -> None:
        path.write_bytes(data(path.read_bytes() if path.is_file() else b"", draw))

    return write


_ANY: dict[str, Damage] = {
    "truncated": _truncated,
    "truncated elsewhere": _truncated,
    "a bit flipped": _flipped,
    "another bit flipped": _flipped,
    "empty": _written(lambda data, draw: b""),
    "noise": _written(lambda data, draw: draw.randbytes(2000)),
    "a folder": _as_folder,
    "a pipe": _as_pipe,
    "a device without end": _linked("/dev/zero"),
    "a link to itself": lambda path, draw: _linked(path.name)(path, draw),
    "a link to nowhere": _linked("nowhere"),
    "a link out": _linked_out,
    "NUL bytes": _written(lambda data, draw: data[:9] + b"\0\0\0" + data[9:]),
}

# Damages of text that holds values: JSON and YAML alike.

_DEEP = "[" * 100_000
_HUGE, _LONG = "1" + "0" * 400, "9" * 5000


def _cut_in(text: bytes) -> Callable[[bytes, random.Random], bytes]:
    """Put `text` into the middle of a file."""
    return lambda data, draw: data[: len(data) // 2] + text + data[len(data) // 2 :]


_TEXT: dict[str, Damage] = {
    "no UTF-8": _written(_cut_in(b"\xff\xfe\xc3")),
    "a byte order mark": _written(lambda data, draw: b"\xef\xbb\xbf" + data),
    "ten million characters in a line": _written(lambda data, draw: data.replace(b"a", b"a" * 10_000_000, 1)),
}

# Damages of JSON, or of one line of JSONL.


def _edited(edit: Callable[[Any, random.Random], Any]) -> Damage:
    """A damage that changes a value of JSON; in JSONL, that of one line."""

    def change(path: Path, draw: random.Random) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        if path.suffix == ".jsonl":
            place = draw.randrange(len(lines) - 1)
            lines[place] = _dumped(edit(json.loads(lines[place]), draw))
        else:
            lines = [_dumped(edit(json.loads("\n".join(lines)), draw))]
        path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")

    return change


class _Raw(str):
    """Text that goes into JSON as it is."""

    __slots__ = ()


def _dumped(value: Any) -> str:
    raw: dict[str, str] = {}

    def marked(one: Any) -> Any:
        if isinstance(one, _Raw):
            raw[f"raw-{len(raw)}-"] = one
            return f"raw-{len(raw) - 1}-"
        if isinstance(one, dict):
            return {key: marked(inner) for key, inner in one.items()}
        return [marked(inner) for inner in one] if isinstance(one, list) else one

    text = json.dumps(marked(value), ensure_ascii=False)
    for mark, given in raw.items():
        text = text.replace(f'"{mark}"', given)
    return text


def _leaves(value: Any, *into: str | int) -> Iterator[tuple[str | int, ...]]:
    """The ways to every value inside, the outermost left out."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*into, key)
        yield from _leaves(one, *into, key)


def _put(new: Callable[[random.Random, Any], Any], among: Callable[[Any], bool] = lambda old: True) -> Damage:
    """Put a value in the place of one that is drawn among those that `among` takes."""

    def edit(value: Any, draw: random.Random) -> Any:
        ways = [way for way in _leaves(value) if among(_at(value, way))]
        if not ways:
            return new(draw, value)
        *front, last = draw.choice(ways)
        _at(value, front)[last] = new(draw, _at(value, [*front, last]))
        return value

    return _edited(edit)


def _at(value: Any, way: Any) -> Any:
    for key in way:
        value = value[key]
    return value


def _twice(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, dict):
        return _Raw(json.dumps(value).replace("{", '{"x": 1, "x": 2, ', 1))
    name = next(iter(value))
    return _Raw(f"{{{json.dumps(name)}: 7, {_dumped(value)[1:]}")


def _without(value: Any, draw: random.Random) -> Any:
    name = draw.choice(list(value)) if isinstance(value, dict | list) and value else None
    if isinstance(value, dict):
        value.pop(name)
    return value if isinstance(value, dict) else value[1:] if isinstance(value, list) else None


def _other_type(draw: random.Random, old: Any) -> Any:
    others: list[Any] = [None, True, -1, 2.5, "?", [], {}, [[1]], {"a": {"b": 1}}]
    return draw.choice([one for one in others if type(one) is not type(old)])


_is_text: Callable[[Any], bool] = lambda old: isinstance(old, str)  # noqa: E731
_is_number: Callable[[Any], bool] = lambda old: isinstance(old, int | float) and not isinstance(old, bool)  # noqa: E731

_JSON: dict[str, Damage] = {
    **_TEXT,
    "nested deep": _put(lambda draw, old: _Raw(_DEEP)),
    "nested deep and closed": _put(lambda draw, old: _Raw("[" * 500 + "]" * 500)),
    "a list": _edited(lambda value, draw: [value]),
    "a word": _edited(lambda value, draw: "word"),
    "null": _edited(lambda value, draw: None),
    "another type": _put(_other_type),
    "another type again": _put(_other_type),
    "and another type": _put(_other_type),
    "a part missing": _edited(_without),
    "another part missing": _edited(_without),
    "a key twice": _edited(_twice),
    "NaN": _put(lambda draw, old: _Raw("NaN"), _is_number),
    "Infinity": _put(lambda draw, old: _Raw("-Infinity"), _is_number),
    "1e400": _put(lambda draw, old: _Raw("1e400"), _is_number),
    "a number of 401 digits": _put(lambda draw, old: _Raw(_HUGE), _is_number),
    "a number of 5000 digits": _put(lambda draw, old: _Raw(_LONG), _is_number),
    "half a character": _put(lambda draw, old: _Raw('"\\ud800"'), _is_text),
    "a name that leads out": _put(lambda draw, old: "../../../secret.txt", _is_text),
    "an absolute name": _put(lambda draw, old: "/etc/passwd", _is_text),
    "controls and turned writing": _put(lambda draw, old: "\x1b[2J\x07\u202egnp\u2066\x00", _is_text),
}
_LINES: dict[str, Damage] = {
    "its last line torn": _written(lambda data, draw: data[:-20]),
    "a line twice": _written(lambda data, draw: data[: data.index(b"\n") + 1] + data),
    "lines of nothing": _written(lambda data, draw: b"\n \n" + data + b"\n\n"),
}

# Damages of YAML.

_LAUGHS = "x0: &x0 [lol, lol, lol]\n" + "".join(
    f"x{n + 1}: &x{n + 1} [{', '.join([f'*x{n}'] * 9)}]\n" for n in range(9)
)


def _appended(text: str) -> Damage:
    return _written(lambda data, draw: data + text.encode("utf-8", "surrogatepass"))


def _key(name: str, value: str) -> Damage:
    """Give a key of the top level another value, or give it at all."""

    def change(path: Path, draw: random.Random) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        kept = [line for line in lines if not line.startswith(f"{name}:")]
        path.write_text(f"{name}: {value}\n" + "\n".join(kept), encoding="utf-8")

    return change


def _first_value(value: str) -> Damage:
    def change(path: Path, draw: random.Random) -> None:
        name, _, _ = path.read_text(encoding="utf-8").partition(":")
        _key(name, value)(path, draw)

    return change


_YAML: dict[str, Damage] = {
    **_TEXT,
    "a bomb of names": _appended(_LAUGHS),
    "a name for itself": _appended("x: &x [*x]\n"),
    "a Python object": _appended("x: !!python/object/apply:os.system ['touch pwned']\n"),
    "a Python module": _appended("x: !!python/module:antigravity ''\n"),
    "a tag of its own": _appended("x: !function softbench.files.unwritable\n"),
    "nested deep": _appended(f"x: {_DEEP}\n"),
    "nested deep by dashes": _appended("x:\n" + "- " * 3000 + "a\n"),
    "a key twice": _written(lambda data, draw: data + data[: data.index(b"\n") + 1]),
    "a number of 5000 digits": _first_value(_LONG),
    "a list of all": _written(lambda data, draw: b"- " + data.replace(b"\n", b"\n  ")),
    "a word": _written(lambda data, draw: b"word\n"),
    "null": _written(lambda data, draw: b"~\n"),
    "a list for a value": _first_value("[[1], {a: b}]"),
    "a mapping for a value": _first_value("{a: {b: c}}"),
    "a date for a value": _first_value("2024-99-99"),
    "an unknown key": _appended("no_such_key: 1\n"),
    "controls": _appended('x: "\\e[2J\\a\\u202e"\n'),
    "half a character": _first_value('"\\ud800"'),
    "two documents": _appended("---\nx: 1\n"),
    "a tab": _appended("x:\n\t- 1\n"),
}

# Damages of CSV.

_CSV: dict[str, Damage] = {
    **_TEXT,
    "a cell too many": _appended("1,2,3\n"),
    "a cell too few": _appended("1\n"),
    "a quote that stays open": _appended('1,"2\n'),
    "a header alone": _written(lambda data, draw: b"q,a\n"),
    "a column twice": _written(lambda data, draw: data.replace(b"q,a", b"a,a", 1)),
    "an empty answer": _appended("why?,\n"),
}

# Damages of safetensors: eight bytes of length, a header in JSON, then the numbers.


def _header(edit: Callable[[dict[str, Any]], Any]) -> Damage:
    """A damage to the header; a string is written as it is."""

    def change(data: bytes, draw: random.Random) -> bytes:
        length = int.from_bytes(data[:8], "little")
        header = edit(json.loads(data[8 : 8 + length]))
        written = (header if isinstance(header, str) else json.dumps(header)).encode()
        return struct.pack("<Q", len(written)) + written + data[8 + length :]

    return _written(change)


def _each(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Damage:
    return _header(
        lambda header: {name: one if name == "__metadata__" else {**one, **change(one)} for name, one in header.items()}
    )


def _numbers(change: Callable[[Any], Any]) -> Damage:
    """Tensors with other numbers, in a whole file; a card beside it that has its hash is told the new one."""

    def write(path: Path, draw: random.Random) -> None:
        loaded = safetensors.numpy.load_file(path).items()
        tensors = {name: change(one) if one.dtype == np.float32 else one for name, one in loaded}
        before, after = path.read_bytes(), safetensors.numpy.save(tensors)
        path.write_bytes(after)
        card = path.with_suffix(".json")
        if card.is_file():
            card.write_text(card.read_text().replace(_sha256(before), _sha256(after)))

    return write


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_TENSORS: dict[str, Damage] = {
    "a header longer than the file": _written(lambda data, draw: struct.pack("<Q", 1 << 40) + data[8:]),
    "a header without end": _written(lambda data, draw: b"\xff" * 8 + data[8:]),
    "a header of no JSON": _header(lambda header: json.dumps(header)[:-9]),
    "a header that is a list": _header(lambda header: [header]),
    "a header nested deep": _header(lambda header: json.dumps(header)[:-1] + f', "a": {_DEEP}}}'),
    "tensors of other names": _header(
        lambda header: {name if name == "__metadata__" else f"x{name}": one for name, one in header.items()}
    ),
    "no tensors": _header(lambda header: {}),
    "a shape larger than the numbers": _each(lambda one: {"shape": [1 << 40, *one["shape"][1:]]}),
    "a shape of no size": _each(lambda one: {"shape": [0, 7]}),
    "a shape below zero": _each(lambda one: {"shape": [-1]}),
    "offsets behind the end": _each(lambda one: {"data_offsets": [1 << 50, 1 << 51]}),
    "offsets on each other": _each(lambda one: {"data_offsets": [0, 4]}),
    "an unknown dtype": _each(lambda one: {"dtype": "F1"}),
    "half the numbers": _written(lambda data, draw: data[: len(data) // 2]),
    "numbers behind the end": _written(lambda data, draw: data + bytes(64)),
    "NaN": _numbers(lambda one: np.full_like(one, np.nan)),
    "Infinity": _numbers(lambda one: np.full_like(one, np.inf)),
    "one dimension": _numbers(lambda one: one.reshape(-1)),
    "other sizes": _numbers(lambda one: np.concatenate([one, one], axis=-1)),
    "whole numbers": _numbers(lambda one: np.zeros(one.shape, dtype=np.int64)),
}

# Damages of a chat template.


def _template(text: str) -> Damage:
    return _written(lambda data, draw: text.encode() + data)


_TEMPLATES: dict[str, Damage] = {
    "no UTF-8": _TEXT["no UTF-8"],
    "a loop without end": _template("{% for n in range(999999999) %}{% endfor %}"),
    "loops in loops": _template("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"),
    "a text of gigabytes": _template("{{ 'a' * 9999999999 }}"),
    "a text that doubles": _template(
        "{% set n = namespace(a='aaaaaaaa') %}{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
    ),
    "a number without end": _template("{{ 9 ** (9 ** 9) }}"),
    "a width of gigabytes": _template("{{ '%9999999999d' % 1 }}"),
    "a macro that calls itself": _template("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}"),
    "Python's insides": _template("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "a way to the system": _template("{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}"),
    "a way by a format": _template("{{ '{0.__class__.__init__.__globals__}'.format(messages) }}{{ 1 / 0 }}"),
    "a file to include": _template("{% include '/etc/passwd' %}"),
    "a module to import": _template("{% import 'os' as os %}"),
    "a change of what it is given": _template("{% set _ = messages.append(1) %}"),
    "no Jinja": _template("{% for %}"),
    "nested deep": _template("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
    "nested blocks": _template("{% if 1 %}" * 2000 + "{% endif %}" * 2000),
    "a text that leaves out what is said": _written(lambda data, draw: b"Hello"),
    "a refusal": _template("{{ raise_exception('no \x1b[2J system\nrole') }}"),
    "a name that is not there": _template("{{ nothing.at.all }}"),
}

# Damages that kinds have of their own.

_TASKS = ("task", "folder of tasks")
_OWN: dict[str, tuple[tuple[str, ...], Damage]] = {
    "a template without end": (
        _TASKS,
        _key("question", "'{{ q }}{% for n in range(999999999) %}{% endfor %}'"),
    ),
    "a template of gigabytes": (_TASKS, _key("question", "\"{{ q }}{{ 'a' * 9999999999 }}\"")),
    "a template into Python": (_TASKS, _key("question", "'{{ q.__class__.__mro__ }}'")),
    "an expression into Python": (_TASKS, _key("answers", "'a.__class__.__init__.__globals__'")),
    "an expression without end": (_TASKS, _key("answers", "'range(999999999) | list'")),
    "a pattern that tries for ever": (_TASKS, _key("pattern", "'(a|aa)+b'")),
    "a pattern of all memory": (_TASKS, _key("pattern", "'(a{9999}){9999}'")),
    "a pattern that is none": (_TASKS, _key("pattern", "'(['")),
    "data that lead out": (_TASKS, _key("data", "../secret.txt")),
    "data of the system": (_TASKS, _key("data", "/etc/passwd")),
    "data out by a link": (_TASKS, lambda path, draw: _data_by_link(path)),
    "data without end": (_TASKS, _key("data", "/dev/zero")),
    "a name that leads out": ((*_TASKS, "task of options"), _key("task", "../../out")),
    "a name of a million characters": ((*_TASKS, "task of options"), _key("task", "a" * 100_000)),
    "a name with controls": (_TASKS, _key("task", '"\\e[2Jgone"')),
    "a million answer tokens": (_TASKS, _key("max_new_tokens", "1e400")),
    "models that are no list": (("spec",), _key("models", "5")),
    "a model that leads out": (("spec",), _key("models", "[{source: m, name: ../../pwned}]")),
    "a seed of 401 digits": (("spec",), _key("seeds", f"[{_HUGE}]")),
    "a limit of NaN": (("spec",), _key("limit", ".nan")),
    "a rate of infinity": (("spec",), _key("methods", "[{kind: soft_prompt, learning_rate: .inf}]")),
    "steps below zero": (("spec",), _key("methods", "[{kind: soft_prompt, steps: -1}]")),
    "a path with controls": (("spec",), _key("output_path", '"a\\0b"')),
    "an output path on a file": (("spec",), _key("output_path", "quiz.yaml")),
    "a template of the harness's without end": (
        ("task of the harness",),
        _key("doc_to_text", "'{% for n in range(99999) %}{% for n in range(99999) %}{% endfor %}{% endfor %}'"),
    ),
    "a template of the harness's into Python": (
        ("task of the harness",),
        _key("doc_to_text", "\"{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}\""),
    ),
    "a function of the harness's": (("task of the harness",), _key("doc_to_text", "!function os.system")),
    "a pattern of the harness's that tries for ever": (
        ("task of the harness",),
        _key(
            "filter_list",
            "[{name: a, filter: [{function: regex, regex_pattern: '(\\S+\\s?|.)+!'}, {function: take_first}]}]",
        ),
    ),
    "data of the harness's that lead out": (
        ("task of the harness",),
        _key("dataset_kwargs", "{data_files: {train: harness_train.jsonl, test: ../secret.jsonl}}"),
    ),
    "an include that leads in a circle": (("task of the harness",), _key("include", "harness.yaml")),
    "an include of the system": (("task of the harness",), _key("include", "/etc/passwd")),
    "many rows in few bytes": (("data, Parquet",), lambda path, draw: _many_rows(path)),
    "nested lists": (("data, Parquet",), lambda path, draw: _nested_parquet(path)),
    "no rows": (("data, Parquet",), lambda path, draw: _parquet(path, {"q": [], "a": []})),
    "other columns": (("data, Parquet",), lambda path, draw: _parquet(path, {"x": [1, 2]})),
    "tensors without end": (("GGUF",), lambda path, draw: _gguf_field(path, 8)),
    "settings without end": (("GGUF",), lambda path, draw: _gguf_field(path, 16)),
    "another version": (("GGUF",), _written(lambda data, draw: data[:4] + struct.pack("<I", 99) + data[8:])),
    "a text without end": (("GGUF",), lambda path, draw: _gguf_field(path, 24)),
    "half the tensors": (("GGUF",), _written(lambda data, draw: data[: len(data) // 2])),
}


def _data_by_link(path: Path) -> None:
    (path.parent / "linked.jsonl").symlink_to(secret_beside(_workshop_of(path)))
    _key("data", "linked.jsonl")(path, random.Random(0))


def _gguf_field(path: Path, place: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:place] + struct.pack("<Q", 1 << 60) + data[place + 8 :])


def _parquet(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _many_rows(path: Path) -> None:
    import pyarrow

    _parquet(path, {name: pyarrow.array(np.zeros(20_000_000, dtype=np.int8)) for name in ("q", "a")})


def _nested_parquet(path: Path) -> None:
    value: Any = "a"
    for _ in range(70):
        value = [value]
    _parquet(path, {"q": [value] * 20, "a": ["b"] * 20})


_OF_FORM: dict[Form, dict[str, Damage]] = {
    "yaml": _YAML,
    "json": _JSON,
    "jsonl": _JSON | _LINES,
    "csv": _CSV,
    "tensors": _TENSORS,
    "template": _TEMPLATES,
    "binary": {},
    "lock": {},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to: its exit code, what it printed, files that were written outside of `folder`, and what it
    did that no reading of a file should: other programs, connections."""

    code: int | str | None
    stdout: str
    stderr: str
    written: tuple[str, ...]
    started: tuple[str, ...]

    @property
    def errors(self) -> list[str]:
        """Lines that say what is wrong."""
        return [line for line in self.stderr.splitlines() if line.startswith("error: ")]


def called(command: Sequence[str], folder: Path) -> Outcome:
    """Call the command line in this process, with `folder` as the working one, as if it were a program."""
    stdout, stderr = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hook, argv, code = sys.unraisablehook, sys.argv, None
    watched = _Watched(folder)
    try:
        sys.argv = ["softbench", *command]
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            warnings.catch_warnings(),
            bounded_memory(),
            watched,
        ):
            softbench.cli.main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv, sys.unraisablehook = argv, hook
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Outcome(code, stdout.getvalue(), stderr.getvalue(), tuple(watched.written), tuple(watched.started))


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take MOST_MEMORY more, and no more: a file without end must not take the machine's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_DATA, (now + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class _Watched:
    """While it is entered, Python tells it of files that are opened to be written and of programs that are started."""

    current: ClassVar["_Watched | None"] = None

    def __init__(self, folder: Path) -> None:
        # What is only there for a while, and what Python and libraries keep beside their code.
        self._allowed = (f"{folder}/", f"{Path(tempfile.gettempdir()) / 'softbench-'}", os.devnull)
        self.written: list[str] = []
        self.started: list[str] = []

    def __enter__(self) -> None:
        _Watched.current = self

    def __exit__(self, *_: object) -> None:
        _Watched.current = None

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self.started.append(f"{event} {args[:2]}")
        for place in _written_by(event, args):
            path = os.path.realpath(place)
            if not path.startswith(self._allowed):
                self.written.append(path)


_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "webbrowser.open"}
_CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.truncate", "os.symlink", "os.link", "os.chmod"}


def _written_by(event: str, args: tuple[Any, ...]) -> list[str]:
    """The files that an event writes, as far as it names them."""
    named = [os.fsdecode(one) for one in args[:2] if isinstance(one, str | bytes | os.PathLike)]
    if event in _CHANGES:
        return named
    if event == "open" and named:
        flags = args[2] if isinstance(args[2], int) else 0
        return named[:1] if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) else []
    return []


def _told(event: str, args: tuple[Any, ...]) -> None:
    watched = _Watched.current
    if watched is not None and (event == "open" or event in _STARTS or event in _CHANGES):
        watched.note(event, args)


sys.addaudithook(_told)


def state_of(workshop: Path) -> dict[str, str]:
    """Every file below a workshop, but those where softbench writes, and what is in it."""
    found = {}
    for path in sorted(workshop.rglob("*")):
        name = path.relative_to(workshop).as_posix()
        if name.partition("/")[0] not in WRITTEN and (path.is_symlink() or path.is_file()):
            found[name] = str(path.readlink()) if path.is_symlink() else _sha256(path.read_bytes())
    return found


def make_workshop(folder: Path) -> None:
    """Fill `folder`, the working one, with a good file of every kind and with what the commands of KINDS need beside.

    SOFTBENCH_CACHE must name `cache` in it.
    """
    rows = [{"q": f"What is {n} and a half?", "a": f"it is {n} and a half or about that"} for n in range(20)]
    _write_lines(folder / "quiz.jsonl", rows)
    (folder / "quiz.json").write_text(json.dumps(rows))
    (folder / "quiz.csv").write_text("q,a\n" + "".join(f"{row['q']},{row['a']}\n" for row in rows))
    _parquet(folder / "quiz.parquet", {name: [row[name] for row in rows] for name in ("q", "a")})
    for ending in ("json", "csv", "parquet"):
        (folder / f"quiz_{ending}.yaml").write_text(QUIZ.format(ending))
    (folder / "quiz.yaml").write_text(QUIZ.format("jsonl"))
    (folder / "mine").mkdir()
    shutil.copy(folder / "quiz.yaml", folder / "mine")
    shutil.copy(folder / "quiz.jsonl", folder / "mine")
    choices = [{"q": f"{n} + 1?", "options": [str(n), str(n + 1), "many"], "gold": 1} for n in range(20)]
    _write_lines(folder / "choose.jsonl", choices)
    (folder / "choose.yaml").write_text(CHOICES)
    (folder / "harness.yaml").write_text(HARNESS)
    _write_lines(folder / "harness_train.jsonl", rows[:10])
    _write_lines(folder / "harness_test.jsonl", rows[10:])
    (folder / "root" / "arc_easy").mkdir(parents=True)
    for place, split in enumerate(("train", "validation", "test")):
        arc = [
            {
                "id": f"{split}{n}",
                "question": f"What comes behind {10 * place + n}?",
                "choices": {"text": ["one", "two", "three", "four"], "label": ["A", "B", "C", "D"]},
                "answerKey": "B",
            }
            for n in range(8)
        ]
        _write_lines(folder / "root" / "arc_easy" / f"{split}.jsonl", arc)
    (folder / "spec.yaml").write_text(
        "models: [{source: m, parameters: 1e6}]\ntasks: [quiz.yaml]\nengine: fake\nlimit: 4\noutput_path: new\n"
        "methods: [zero_shot]\n"
    )
    (folder / "mapping.yaml").write_text("a: b\nb: c\nc: a\n")
    (folder / "tiny.yaml").write_text("models: [tiny]\ntasks: [capitals]\nmethods: [zero_shot]\nlimit: 4\n")
    _make_models(folder)
    _make_runs(folder)


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _make_models(folder: Path) -> None:
    """A tiny model, also as GGUF, as its conversion in the cache, and with a soft prompt of ours and one of PEFT's."""
    save_tiny_model("llama", folder / "tiny")
    (folder / "tiny" / "chat_template.jinja").write_text(CHAT)
    write_gguf(folder / "tiny", folder / "tiny.gguf")
    load_model(str(folder / "tiny.gguf"), "float32", "cpu")
    model = load_model(str(folder / "tiny"), "float32", "cpu")
    vectors = np.random.default_rng(0).normal(size=(2, model.info.hidden_size)).astype(np.float32)
    soft_prompt = save_soft_prompt(folder / "prompt", SoftPrompt(vectors, {}), model.info, {})
    export_peft(model, soft_prompt, folder / "adapter")


def _make_runs(folder: Path) -> None:
    """Finished runs, of the fake engine where that does, and a tuning that was cut off."""
    methods: list[Any] = ["zero_shot", "few_shot", {"kind": "soft_prompt", "steps": 3, "checkpoints": [1]}]
    fake: dict[str, Any] = {"engine": "fake", "tasks": ["quiz.yaml"], "limit": 4, "methods": methods}
    run(read_spec(None, fake | {"models": ["m"], "output_path": Path("out")}), SILENT)
    run(read_spec(None, fake | {"models": ["a", "b", "c"], "output_path": Path("many")}), SILENT)
    (folder / "again.yaml").write_text(
        "models: [m]\ntasks: [quiz.yaml]\nengine: fake\nlimit: 4\noutput_path: again\n"
        "methods: [zero_shot, {kind: soft_prompt, steps: 3}, {kind: lora, steps: 2}]\n"
    )
    (folder / "state.yaml").write_text(
        "models: [tiny]\ntasks: [capitals]\nlimit: 1\noutput_path: state\ndtype: float32\ndevice: cpu\n"
        "methods: [{kind: soft_prompt, steps: 2, num_virtual_tokens: 2}]\n"
    )
    run(read_spec(Path("again.yaml"), {}), SILENT)
    with contextlib.suppress(_Enough):
        run(read_spec(Path("state.yaml"), {}), _CutOff())


class _Enough(Exception):
    """A tuning has gone on for long enough."""


class _CutOff(Silence):
    """Ends the run at the second step of a tuning."""

    @contextlib.contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        steps = iter(range(1, total))

        def advance(amount: int, detail: str = "") -> None:
            if label.endswith(": tune") and next(steps, None) is None:
                raise _Enough

        yield advance


def write_gguf(model: Path, path: Path) -> None:
    """The tiny Llama in `model` as a GGUF file."""
    tokenizer = json.loads((model / "tokenizer.json").read_text())["model"]
    config = json.loads((model / "config.json").read_text())
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    tokens += [f"<unused{n}>" for n in range(len(tokens), config["vocab_size"])]
    special = {place for place, token in enumerate(tokens) if place < 3 or token.startswith("<unused")}
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if n in special else TokenType.NORMAL for n in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    for name, weights in safetensors.numpy.load_file(model / "model.safetensors").items():
        writer.add_tensor(_gguf_name(name), _gguf_order(name, weights, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _GGUF_NAMES:
        return f"{_GGUF_NAMES[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{_GGUF_NAMES[rest]}.weight"


def _gguf_order(name: str, weights: Any, config: dict[str, Any]) -> Any:
    """llama.cpp keeps the two halves of a rotary head's rows in turns."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for part, count in heads.items():
        if part in name:
            rows = weights.shape[0] // count // 2
            weights = weights.reshape(count, 2, rows, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
    return np.ascontiguousarray(weights, dtype=np.float32)
