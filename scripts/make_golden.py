"""Writes tests/golden/golden.json anew: to be run, and its diff read, when a change is meant to move these figures."""

import json
import tempfile
from pathlib import Path

import torch

from softbench.models import load_model
from tests.golden.test_golden import GOLDEN, measure
from tests.tiny import ARCHITECTURES, save_tiny_model


def main() -> None:
    """Measure every tiny model, single-threaded and in float32, as the test does."""
    torch.set_num_threads(1)
    values = {}
    with tempfile.TemporaryDirectory() as root:
        for architecture in sorted(ARCHITECTURES):
            folder = Path(root) / architecture
            save_tiny_model(architecture, folder)
            values[architecture] = measure(load_model(str(folder), "float32", "cpu"))
    GOLDEN.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
