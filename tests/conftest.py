"""What tests share: tiny models with random weights, local data, and an environment without network or threads."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch

from softbench.models import LoadedModel, load_model
from tests.tiny import ARCHITECTURES, save_tiny_model

# The same examples each time, and no deadline: machines that run the tests may be busy.
hypothesis.settings.register_profile("softbench", deadline=None, derandomize=True)
hypothesis.settings.load_profile("softbench")

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def data_dir() -> Path:
    """The folder with real benchmarks; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("SOFTBENCH_DATA", DEFAULT_DATA))
    if not (folder / "arc_easy").is_dir():
        pytest.skip(f"no benchmarks in {folder}: set SOFTBENCH_DATA")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny model of the named architecture, made once."""
    root = tmp_path_factory.mktemp("models")

    def folder(architecture: str) -> Path:
        path = root / architecture
        if not path.exists():
            save_tiny_model(architecture, path)
        return path

    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Callable[[str], Path]) -> Callable[[str], LoadedModel]:
    """A tiny model of the named architecture in float32, loaded once."""
    loaded: dict[str, LoadedModel] = {}

    def model(architecture: str) -> LoadedModel:
        if architecture not in loaded:
            loaded[architecture] = load_model(str(tiny_folder(architecture)), "float32", "cpu")
        return loaded[architecture]

    return model


@pytest.fixture(params=sorted(ARCHITECTURES))
def tiny_model(request: pytest.FixtureRequest, tiny: Callable[[str], LoadedModel]) -> LoadedModel:
    """Each tiny model in turn."""
    return tiny(request.param)
