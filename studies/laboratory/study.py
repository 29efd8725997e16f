"""The study: every recipe from prose to outcomes, in processes side by side, then the analysis.

What is finished is not done again: a killed study goes on where it was. Under its folder OUT:

    tasks/       softbench's task files and their data
    models/      NAME-step25, ..., NAME-step100, NAME-post
    runs/        softbench's runs; see evaluate
    outcomes/    NAME.json, all that the analysis needs of a recipe
"""

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from softbench.files import write_atomic, write_json
from studies.laboratory.recipes import Form, Recipe
from studies.laboratory.tasks import facts_of, write_tasks
from studies.laboratory.tokenizer import train_tokenizer
from studies.laboratory.world import World, make_world

SEED = 0


def run(form: Form, out: Path, results: Path, workers: int, only: tuple[str, ...] = ()) -> None:
    """Run the study in `out` and write its tables to `results`; with `only`, run these recipes and write no tables."""
    from studies.laboratory.analysis import analyse
    from studies.laboratory.tables import write_tables

    recipes = [recipe for recipe in form.recipes if not only or recipe.name in only]
    world = make_world(form.people, SEED)
    if not (out / "tokenizer.json").is_file():
        write_tasks(world, out / "tasks", SEED)
        write_atomic(out / "tokenizer.json", train_tokenizer(world, SEED).to_str().encode())
    # The longest first, so that no process is left alone with it at the end.
    longest = sorted(recipes, key=lambda recipe: -recipe.steps * recipe.width**2 * recipe.layers)
    if workers == 1:
        for recipe in longest:
            do_recipe(recipe, form, world, out)
    else:
        # Forked processes inherit torch's threads and locks.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _one_thread) as pool:
            for future in as_completed(pool.submit(do_recipe, recipe, form, world, out) for recipe in longest):
                future.result()
    if not only:
        write_tables(analyse(form, out / "outcomes", SEED), results)


def do_recipe(recipe: Recipe, form: Form, world: World, out: Path) -> None:
    """Make a recipe's models, run softbench on them, and write what came out to `outcomes`."""
    import torch

    from studies.laboratory.evaluate import evaluate_base, evaluate_early, evaluate_post
    from studies.laboratory.outcomes import gather
    from studies.laboratory.posttrain import posttrain
    from studies.laboratory.pretrain import pretrain, step_name

    kept = out / "outcomes" / f"{recipe.name}.json"
    if kept.is_file():
        return
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    models, tasks, runs = out / "models", out / "tasks", out / "runs"
    base, post = models / step_name(recipe, 100), models / f"{recipe.name}-post"
    early = {percent: models / step_name(recipe, percent) for percent in form.early}
    say = _speaker(recipe.name)
    with say("pre-trained"):
        pretrain(recipe, world, tokenizer, models, form.early, SEED)
    with say("post-trained"):
        posttrain(base, tasks, post, form.post_steps, SEED)
    with say("asked what they know"):
        known = {percent: _truths(model, world) for percent, model in {**early, 100: base}.items()}
    with say("evaluated as a base model"):
        evaluate_base(base, tasks, runs, form)
    with say("evaluated as a post-trained model"):
        evaluate_post(post, tasks, runs, form)
    with say("evaluated at earlier checkpoints"):
        for model in early.values():
            evaluate_early(model, tasks, runs, form)
    write_json(
        kept,
        {
            "recipe": asdict(recipe),
            "parameters": _count_parameters(base),
            "truth": known,
            "outcomes": gather(runs, base.name, {percent: model.name for percent, model in early.items()}, post.name),
        },
    )


def _truths(model: Path, world: World) -> dict[str, Any]:
    from softbench.models import load_model
    from studies.laboratory.knowledge import knowledge
    from studies.laboratory.outcomes import truth

    loaded = load_model(str(model), "float32", "cpu")
    return {
        name: truth(knowledge(loaded, facts_of(people, world)))
        for name, people in (("test", world.group("test")), ("seen", world.group("tune")))
    }


def _count_parameters(model: Path) -> int:
    import safetensors

    with safetensors.safe_open(model / "model.safetensors", "np") as file:
        sizes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118  # it is no mapping
    return sum(int(math.prod(size)) for size in sizes)


def _one_thread() -> None:
    """What a worker begins with: two processes of one thread are faster on small models than one of two."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    torch.set_num_threads(1)


def _speaker(name: str) -> Callable[[str], Any]:
    @contextmanager
    def say(what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        print(f"{name}: {what} ({time.perf_counter() - started:.0f} s)", flush=True)

    return say
