"""Post-training: a base model, fine-tuned as a whole on all answer formats with facts of `post` people.

It learns the forms. The facts that tests ask for are not among what it is trained on, and the prompts are those that
softbench writes.
"""

from pathlib import Path

import torch
import transformers

from softbench.models import LoadedModel, load_model
from softbench.rows import encode_pairs
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt
from studies.laboratory.pretrain import IGNORED, Batch, Schedule, fit, is_saved, save
from studies.laboratory.tasks import FORMS, POST
from studies.laboratory.world import generator_of

ROWS, PEAK_RATE, WARM_UP = 16, 3e-4, 10


def posttrain(base: Path, tasks: Path, folder: Path, steps: int, seed: int) -> None:
    """Fine-tune the model in `base` and leave it in `folder`, unless it is there."""
    if is_saved(folder):
        return
    loaded = load_model(str(base), "float32", "cpu")
    model = loaded.model.requires_grad_(True)
    prompts = [prompt for name in FORMS for prompt in _prompts(tasks / f"{name}{POST}.yaml")]
    examples = [_example(loaded, prompt) for prompt in prompts]

    def batch_of(step: int) -> Batch:
        draw = generator_of(seed, "post", str(step))
        return _padded([examples[place] for place in draw.integers(len(examples), size=ROWS)], loaded.eos_ids[0])

    fit(model, batch_of, Schedule(steps, PEAK_RATE, min(WARM_UP, steps // 4)), lambda step: None)
    save(model, transformers.AutoTokenizer.from_pretrained(base), folder)


def _prompts(path: Path) -> list[Prompt]:
    task = get_task(str(path))
    return [render_prompt(task, sample) for sample in load_data(task, None).tune]


def _example(loaded: LoadedModel, prompt: Prompt) -> tuple[list[int], int]:
    """A whole row with BOS and EOS, and how many of its tokens come before the answer."""
    [(context, target)] = encode_pairs(loaded, [(prompt.text, prompt.target)])
    before = ([] if loaded.bos_id is None else [loaded.bos_id]) + context
    return [*before, *target, loaded.eos_ids[0]], len(before)


def _padded(rows: list[tuple[list[int], int]], pad: int) -> Batch:
    width = max(len(ids) for ids, _ in rows) - 1
    ids = torch.full((len(rows), width), pad)
    following = torch.full((len(rows), width), IGNORED)
    for place, (row, before) in enumerate(rows):
        whole = torch.tensor(row)
        ids[place, : len(row) - 1] = whole[:-1]
        following[place, before - 1 : len(row) - 1] = whole[before:]
    return ids, following
