"""YAML and JSON that set traps."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from softbench.untrusted import DEEPEST, check_depth, load_json, load_yaml, printable, read_text

LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, y]\nc: {d: 2.5}", {"a": 1, "b": ["x", "y"], "c": {"d": 2.5}}),
        ("question: |\n  one\n  two\n", {"question": "one\ntwo\n"}),
        ("", None),
    ],
)
def test_plain_yaml_is_read(text: str, value: Any) -> None:
    assert load_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "names for parts"),
        ("a: &a {b: *a}", "names for parts"),
        ("a: &x 1\nb: {<<: *x}", "names for parts"),
        ("a: 1\nb: 2\na: 3", "key 'a' is given twice"),
        ("x: {a: 1, 'a': 2}", "key 'a' is given twice"),
        ("[" * 100_000, f"more than {DEEPEST} deep"),
        ("a: " + "[" * 65 + "]" * 65, f"more than {DEEPEST} deep"),
        ("- " * 70 + "a", f"more than {DEEPEST} deep"),
        ("a: " + "9" * 5000, "a number of 5,000 characters"),
        ("a: 1" + "_0" * 5000, "a number of"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("a: 2024-99-99", "month"),
        ("a: !!int x", "invalid literal"),
        ("a: !!binary 'a'", "base64"),
        ("? [a]\n: b", "unhashable"),
        ("? {a: b}\n: b", "unhashable"),
        ('a: "\\ud800"', "surrogates"),
        ("a: \x00", "special characters"),
        ("a: [", "expected"),
        ("a: 'x", "end of stream"),
        ("--- a\n--- b", "single document"),
        ("%YAML 99.9\n---\na", "incompatible"),
        ("a:\n\t- b", "cannot start any token"),
    ],
)  # fmt: skip
def test_a_trap_in_yaml_is_named_in_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "key 'a' is given twice"),
        ('{"x": [{"b": 1, "b": 1}]}', "key 'b' is given twice"),
        ("[" * 100_000, "deep"),
        ("[" * 66 + "]" * 66, f"more than {DEEPEST} deep"),
        ('{"a":' * 66 + "1" + "}" * 66, f"more than {DEEPEST} deep"),
        ("NaN", "JSON compliant"),
        ('{"a": Infinity}', "JSON compliant"),
        ('{"a": [-Infinity]}', "JSON compliant"),
        ('{"a": 1e999}', "JSON compliant"),
        ("9" * 5000, "limit"),
        ('"\\ud800"', "surrogates"),
        ('{"\\udfff": 1}', "surrogates"),
        ("{a: 1}", "property name"),
        ("", "Expecting value"),
        ('"a', "Unterminated"),
    ],
)
def test_a_trap_in_json_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        load_json(text)


def test_json_without_traps_is_read() -> None:
    value = {"a": [1, 2.5, None, True, "ü🙂"], "b": {"c": {}}}
    assert load_json(json.dumps(value)) == value
    assert load_json("[" * DEEPEST + "]" * DEEPEST)


def test_depth_is_counted_however_wide_a_value_is() -> None:
    check_depth([[[]] * 1000] * 1000)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        check_depth(deep)


def test_a_file_is_read_up_to_a_size_and_in_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\n")
    assert read_text(path, 5) == "a: 1\n"
    with pytest.raises(ValueError, match="it has 5 bytes, and 4 are the most"):
        read_text(path, 4)
    path.write_bytes(b"a: \xff")
    with pytest.raises(ValueError, match="utf-8"):
        read_text(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(OSError, match="pipe or a device"):
        read_text(tmp_path / "pipe.yaml")
    with pytest.raises(OSError, match="pipe or a device"):
        read_text(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)


def test_what_steers_a_terminal_is_refused() -> None:
    assert printable("Größe 7B") == "Größe 7B"
    with pytest.raises(ValueError, match="can't be printed"):
        printable("\x1b[2Jgone")
