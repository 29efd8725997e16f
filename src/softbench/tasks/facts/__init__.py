"""Small tables of facts that ship with softbench, and the way they are split."""

import csv
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from softbench.types import Sample, Split


def read_facts(name: str) -> list[list[str]]:
    """The rows of a CSV table of this folder, without its header; empty cells left out."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [[cell for cell in row if cell] for row in list(csv.reader(text.splitlines()))[1:]]


def split_by_hash(samples: Sequence[Sample], num_tune: int, num_validation: int) -> dict[Split, list[Sample]]:
    """Split by the hash of each sample's id: fixed for good, and blind to what a sample says."""
    ordered = sorted(samples, key=lambda sample: hashlib.sha256(sample.id.encode()).hexdigest())
    end = num_tune + num_validation
    return {"tune": ordered[:num_tune], "validation": ordered[num_tune:end], "test": ordered[end:]}
