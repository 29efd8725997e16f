"""Who may import whom, and how little the first command loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import softbench

ROOT = Path(softbench.__file__).parent
TORCH_USERS = {
    "doctor.environment",
    "doctor.self_test",
    "models",
    "rows",
    "sharing",
    "engines.transformers",
    "engines.vllm",
    "memory",
    "methods.learner",
    "methods.losses",
    "methods.tune",
    "methods.tune_adapter",
    "methods.peft_format",
    "watching",
}
# Layers from the bottom: a module may import from layers below its own, and from its own package.
LAYERS = [
    {"types", "errors"},
    {"files", "interrupts", "memory", "patterns", "sandbox", "untrusted", "watching"},
    {"answer_kinds", "models", "record_reading"},
    {"answer_formats", "rows", "records", "saved_records", "spec"},
    {"sharing"},
    {"tasks", "methods", "engines", "scoring", "stats"},
    {"backends", "doctor", "lm_eval_model", "results", "runs"},
    {"pipeline", "report", "share"},
    {"estimate", "executors"},
    {"api", "cli"},
    {"__main__"},
]


def modules() -> dict[str, Path]:
    paths = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items() if name != "__init__"}


def imported(path: Path) -> set[str]:
    """Full names of everything that a module imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def layer_of(name: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if name.partition(".")[0] in layer)


def test_every_module_has_its_layer() -> None:
    assert len(modules()) > 30
    for name in modules():
        layer_of(name)


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_one_way_and_siblings_do_not_know_each_other(name: str) -> None:
    package = name.partition(".")[0]
    for target in imported(modules()[name]):
        if target.startswith("softbench."):
            other = target.removeprefix("softbench.").partition(".")[0]
            assert other == package or layer_of(other) < layer_of(package), f"{name} imports {target}"


@pytest.mark.parametrize("name", sorted(modules()))
def test_only_models_rows_engines_and_the_loop_import_torch(name: str) -> None:
    uses = {target.partition(".")[0] for target in imported(modules()[name])} & {"torch", "transformers"}
    assert not uses or name in TORCH_USERS


@pytest.mark.parametrize(
    "code",
    [
        "import softbench",
        "import softbench.pipeline, softbench.report.table",
        "from typer.testing import CliRunner; from softbench.cli import app; "
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0",
    ],
)
def test_the_first_commands_load_no_heavy_library(code: str) -> None:
    heavy = "{'torch', 'transformers', 'scipy', 'matplotlib', 'pandas'}"
    check = f"{code}; import sys; loaded = {heavy} & set(sys.modules); assert not loaded, loaded"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
