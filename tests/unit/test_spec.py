from pathlib import Path
from typing import Any

import pytest

from softbench.errors import SpecError
from softbench.spec import FewShotSpec, SoftPromptSpec, ZeroShotSpec, read_spec

FLAGS: dict[str, Any] = {"models": ["gemma"], "tasks": ["capitals"]}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


def test_flags_alone_make_a_spec_with_all_three_methods() -> None:
    spec = read_spec(None, FLAGS)
    assert spec.methods == (ZeroShotSpec(), FewShotSpec(num_fewshot=5), SoftPromptSpec(steps=80, batch_size=8))
    assert spec.models[0].source == "gemma"
    assert spec.seeds == (0,)


def test_flags_go_to_the_methods_that_have_them() -> None:
    spec = read_spec(None, FLAGS | {"num_fewshot": 2, "steps": 7, "num_virtual_tokens": 3})
    assert spec.methods == (ZeroShotSpec(), FewShotSpec(num_fewshot=2), SoftPromptSpec(steps=7, num_virtual_tokens=3))


def test_a_file_says_all_that_flags_say_and_flags_override_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        models: [{source: org/base, revision: step1000, name: early}, org/post]
        tasks: [capitals, elements]
        methods: [zero_shot, {kind: soft_prompt, steps: 20}, {kind: soft_prompt, steps: 40}]
        seeds: [0, 1]
        limit: 10
        """,
    )
    spec = read_spec(path, {})
    assert [model.label for model in spec.models] == ["early", "post"]
    assert spec.methods == (ZeroShotSpec(), SoftPromptSpec(steps=20), SoftPromptSpec(steps=40))
    overridden = read_spec(path, {"limit": 5, "seeds": [3], "batch_size": 2, "tasks": ["arithmetic"]})
    assert (overridden.limit, overridden.seeds, overridden.tasks) == (5, (3,), ("arithmetic",))
    assert overridden.methods[1:] == (SoftPromptSpec(steps=20, batch_size=2), SoftPromptSpec(steps=40, batch_size=2))


@pytest.mark.parametrize(
    ("source", "label"), [("org/base", "base"), ("/a/b/", "b"), ("x/y.gguf", "y"), ("plain", "plain")]
)
def test_a_model_is_called_by_the_end_of_its_source(source: str, label: str) -> None:
    assert read_spec(None, FLAGS | {"models": [source]}).models[0].label == label


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"models": None}, "'models' is missing; give it in the spec file or as a flag"),
        ({"tasks": []}, "'tasks' can't be"),
        ({"steps": -1}, r"'methods\.2\.steps' can't be -1: it should be greater than or equal to 1"),
        ({"limit": 0}, "'limit' can't be 0"),
        ({"methods": ["zero_shots"]}, "method 'zero_shots' is unknown; did you mean 'zero_shot'?"),
        ({"methods": [3]}, "a method is a name or a mapping"),
        ({"methods": ["zero_shot"], "steps": 10}, "--steps is given, but no method of this run uses it"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"dtype": "float8"}, "'dtype' can't be 'float8'"),
        ({"seeds": [-1]}, r"'seeds\.0' can't be -1"),
        ({"models": ["a/x", "b/x"]}, "two models would be called 'x'"),
        ({"models": [""]}, "source"),
        ({"models": ["a:b", "a_b"]}, "two models would be called 'a_b'"),
        ({"models": ["x\ty"]}, "holds characters that can't be printed"),
        ({"output_path": "a\0b"}, "holds characters that can't be printed"),
        ({"seeds": []}, "'seeds' can't be"),
        ({"limit": True}, "'limit' can't be True"),
    ],
)
def test_an_impossible_flag_is_one_clear_error(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_spec(None, FLAGS | overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: [gemma]\ntasks: [capitals]", "key 'model' is unknown; did you mean 'models'?"),
        ("models: [g]\ntaks: [capitals]", "key 'taks' is unknown; did you mean 'tasks'?"),
        (
            "models: [g]\ntasks: [t]\nmethods: [{kind: soft_prompt, step: 3}]",
            r"key 'methods\.0\.step' is unknown; did you mean 'steps'?",
        ),
        ("models: [{source: g, revison: x}]\ntasks: [t]", r"'models\.0\.revison' is unknown; did you mean 'revision'?"),
        ("models: [g]\ntasks: [t]\nsoft_prompt: {steps: 10}", "key 'soft_prompt' is unknown"),
        ("models: [g]\ntasks: [t]\nmethods: []", "'methods' can't be"),
        ("models: [g]\ntasks: [t]\nlimit: yes", "'limit' can't be True"),
        ("models: [{source: g, name: 2024-13-45}]\ntasks: [t]", "is not YAML: month must be in 1..12"),
        ("models: [g]\ntasks: capitals", "'tasks' can't be 'capitals': it should be a list"),
        ("- a\n- b", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("models: [g", "is not YAML"),
        ("models: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("[" * 3000, "is not YAML"),
    ],
)
def test_an_impossible_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_spec(write(tmp_path, text), {})
    assert "\n" not in str(caught.value)


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        read_spec(tmp_path / "none.yaml", {})
    with pytest.raises(SpecError, match="can't be read"):
        read_spec(tmp_path, {})
    (tmp_path / "latin.yaml").write_bytes("models: [é]".encode("latin-1"))
    with pytest.raises(SpecError, match="can't be read"):
        read_spec(tmp_path / "latin.yaml", {})


def test_the_data_folder_is_the_flags_then_the_files_then_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "models: [g]\ntasks: [t]\ndata_dir: of_file")
    monkeypatch.setenv("SOFTBENCH_DATA", "of_environment")
    assert read_spec(path, {"data_dir": Path("of_flag")}).data_dir == Path("of_flag")
    assert read_spec(path, {}).data_dir == Path("of_file")
    assert read_spec(None, FLAGS).data_dir == Path("of_environment")
    monkeypatch.delenv("SOFTBENCH_DATA")
    assert read_spec(None, FLAGS).data_dir is None


def test_a_tilde_is_the_home_folder() -> None:
    assert read_spec(None, FLAGS | {"output_path": "~/out"}).output_path == Path.home() / "out"
