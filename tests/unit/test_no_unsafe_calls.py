"""softbench calls nothing that runs what a file says: found in the source itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import softbench

ROOT = Path(softbench.__file__).parent
PATHS = sorted(ROOT.rglob("*.py"))

# Modules whose readers run what they read, or run other programs.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "subprocess", "pty", "telnetlib"}
BUILTINS = {"eval", "exec", "compile", "__import__", "input"}
CALLS = {
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "numpy.load",
    "np.load",
    "pandas.read_pickle",
    "os.system",
    "os.popen",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.unsafe_load_all",
    "yaml.full_load_all",
    "yaml.load_all",
    "runpy.run_path",
    "runpy.run_module",
}
# The one place where YAML is read with a loader that is given: a SafeLoader by its type.
YAML_LOAD = {"untrusted.py": "yaml.load(text, loader)"}


def faults(tree: ast.AST, name: str) -> Iterator[str]:
    """What a module calls or imports that could run what a file says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module or ""] if (node.module or "").partition(".")[0] in MODULES else []
        elif isinstance(node, ast.Call):
            found = list(_of_call(node, name))
        elif isinstance(node, ast.arg | ast.keyword):
            found = [node.arg or ""] if isinstance(node, ast.arg) and node.arg == "trust_remote_code" else []
        else:
            continue
        for one in found:
            yield f"{name}:{getattr(node, 'lineno', 0)}: {one}"


def _of_call(call: ast.Call, name: str) -> Iterator[str]:
    called = ast.unparse(call.func)
    settings = {one.arg: one.value for one in call.keywords}
    if called in BUILTINS or called in CALLS or called.startswith("os.exec") or called.startswith("os.spawn"):
        yield called
    if called == "yaml.load" and ast.unparse(call) != YAML_LOAD.get(name):
        yield "yaml.load"
    shell = settings.get("shell")
    if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
        yield "shell=True"
    trust = settings.get("trust_remote_code")
    if trust is not None and not (isinstance(trust, ast.Constant) and trust.value is False):
        yield f"trust_remote_code={ast.unparse(trust)}"
    if (
        called.startswith("transformers.Auto")
        and called.endswith((".from_pretrained", ".from_config"))
        and trust is None
    ):
        yield f"{called} without trust_remote_code=False"
    if settings.get("allow_pickle") is not None:
        yield "allow_pickle"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_runs_what_a_file_says(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert list(faults(tree, path.name)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import subprocess as s",
        "eval(text)",
        "exec(text)",
        "torch.load(path)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.UnsafeLoader)",
        "yaml.full_load(text)",
        "run('x', shell=True)",
        "run('x', shell=asked)",
        "load(path, trust_remote_code=True)",
        "load(path, trust_remote_code=asked)",
        "def load(path, trust_remote_code=False): pass",
        "transformers.AutoTokenizer.from_pretrained(folder)",
        "np.load(path, allow_pickle=True)",
        "os.system('x')",
    ],
)
def test_what_would_do_so_is_found(code: str) -> None:
    assert list(faults(ast.parse(code), "one.py"))


def test_every_module_is_looked_at() -> None:
    assert len(PATHS) > 80
    assert (ROOT / "untrusted.py") in PATHS
