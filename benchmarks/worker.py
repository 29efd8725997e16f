"""One contender does one piece of work in a process of its own, and prints what it took as JSON.

Its time leaves out loading and a short warm-up; its memory is the most that the process held above what the loaded
model took, read every few milliseconds. The time that softbench spends inside the model's calls is taken as it goes.
"""

import dataclasses
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode

from softbench.engines import transformers as engine_module
from softbench.methods import tune as tuning
from softbench.methods.losses import Example, encode_examples
from softbench.models import LoadedModel, load_model
from softbench.rows import encode
from softbench.tasks import TaskData, get_task, load_data, num_shared, render_prompt
from softbench.types import Prompt, SoftPrompt, TuneResult, TuneSettings

BATCH_SIZE = 16
WARM_UP = 4
SETTINGS = TuneSettings(num_virtual_tokens=10, steps=8, batch_size=8, learning_rate=0.1, warmup_steps=2, init="text")


@dataclasses.dataclass(frozen=True)
class Work:
    """What is to be done: `kind` is tune, choices or generate; `samples` test samples, or steps of tuning.

    With `count_operations` softbench does it once more, untimed, to count floating-point operations.
    """

    kind: str
    task: str
    samples: int
    num_fewshot: int = 0
    soft_prompt: bool = False
    count_operations: bool = False

    def prompts(self) -> list[Prompt]:
        """Test prompts with their shots, or tuning prompts."""
        task, data = self.load()
        if self.kind == "tune":
            # As many as the steps take, so that both contenders see the same samples.
            return [render_prompt(task, sample) for sample in data.tune[: self.samples * SETTINGS.batch_size]]
        shots = data.tune[: self.num_fewshot]
        made = [render_prompt(task, sample, shots) for sample in data.test[: self.samples]]
        shared = num_shared([prompt.text for prompt in made])
        return [dataclasses.replace(prompt, num_shared=shared) for prompt in made]

    def load(self) -> tuple[Any, TaskData]:
        """Task and data."""
        task = get_task(self.task)
        return task, load_data(task, Path(os.environ.get("SOFTBENCH_DATA", "../shared/data")))


@contextmanager
def measured(result: dict[str, Any]) -> Any:
    """Adds seconds, and bytes above what was held before, to `result`."""
    process, most, done = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.004):
            most[0] = max(most[0], process.memory_info().rss)

    before = process.memory_info().rss
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.perf_counter()
    yield
    result["seconds"] = time.perf_counter() - started
    done.set()
    watcher.join()
    result["peak_bytes_above_model"] = max(0, most[0] - before)


@contextmanager
def timed_calls(model: LoadedModel, result: dict[str, Any]) -> Any:
    """Adds the seconds spent in the model, there and back, and those in sums and maxima over its vocabulary."""
    spent = {"model_seconds": 0.0, "vocabulary_seconds": 0.0}

    def timed(kind: str, owner: Any, name: str) -> Any:
        call = getattr(owner, name)

        @functools.wraps(call)
        def within(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[kind] += time.perf_counter() - started

        return patch.object(owner, name, within)

    with (
        timed("model_seconds", model.model, "forward"),
        timed("model_seconds", torch.Tensor, "backward"),
        timed("vocabulary_seconds", tuning, "_cross_entropy"),
        timed("vocabulary_seconds", engine_module, "totals_and_likeliest"),
        timed("vocabulary_seconds", engine_module, "likeliest_tokens"),
    ):
        yield
    result.update(spent)


def operations(work: Work, do: Callable[[], Any]) -> int:
    """Floating-point operations of matrix products in `do`, as torch counts them; 0 where `work` does not ask."""
    if not work.count_operations:
        return 0
    with FlopCounterMode(display=False) as counter:
        do()
    return int(counter.get_total_flops())


def tune_ours(model: LoadedModel, work: Work, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """softbench's loop."""
    task, _ = work.load()
    settings = dataclasses.replace(SETTINGS, steps=work.samples)
    warm = dataclasses.replace(SETTINGS, steps=1, batch_size=2)
    tuning.tune(model, prompts[:2], task.description, warm, 0, lambda loss: None)
    result: dict[str, Any] = {}

    def tune() -> TuneResult:
        return tuning.tune(model, prompts, task.description, settings, 0, lambda loss: None)

    with timed_calls(model, result), measured(result):
        tuned = tune()
    return result | {
        "losses": tuned.losses,
        "tokens": tuned.num_tokens + settings.batch_size * work.samples * settings.num_virtual_tokens,
        "flops": operations(work, tune),
    }


def tune_peft(model: LoadedModel, work: Work, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """PEFT's prompt tuning in a plain loop: right padding, labels on the targets, AdamW, batches as they come."""
    import peft

    examples = encode_examples(model, prompts, SETTINGS.num_virtual_tokens)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=SETTINGS.num_virtual_tokens)
    wrapped: Any = peft.get_peft_model(model.model, config)
    task, _ = work.load()
    start = tuning.initial_vectors(model, task.description, SETTINGS, torch.Generator().manual_seed(0))
    embedding = wrapped.prompt_encoder["default"].embedding
    embedding.weight.data = start.clone()
    parameters = [one for one in wrapped.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=SETTINGS.learning_rate * model.embedding_rms)
    bos = [] if model.bos_id is None else [model.bos_id]

    def step(batch: Sequence[Example]) -> float:
        longest = max(len(example.ids) for example in batch) + len(bos)
        ids = torch.full((len(batch), longest), model.eos_ids[0])
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, example in enumerate(batch):
            whole = torch.tensor([*bos, *example.ids])
            ids[row, : len(whole)], mask[row, : len(whole)] = whole, 1
            first = example.learned[0] + len(bos)
            labels[row, first : len(whole)] = whole[first:]
        optimizer.zero_grad()
        loss = wrapped(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    step(examples[:2])
    result: dict[str, Any] = {}
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    size = SETTINGS.batch_size
    with measured(result):
        losses = [
            step([examples[index] for index in order[first : first + size]])
            for first in range(0, work.samples * size, size)
        ]
    return result | {"losses": losses, "tokens": sum(len(one.ids) for one in examples)}


def soft_prompt_of(model: LoadedModel, work: Work) -> SoftPrompt | None:
    """Untuned vectors: what they say does not matter to how long they take."""
    if not work.soft_prompt:
        return None
    task, _ = work.load()
    vectors = tuning.initial_vectors(model, task.description, SETTINGS, torch.Generator().manual_seed(0))
    return SoftPrompt(vectors.cpu().numpy(), {})


def evaluate_ours(model: LoadedModel, work: Work, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """softbench's engine."""
    task, _ = work.load()
    engine, soft = engine_module.TransformersEngine(model, BATCH_SIZE), soft_prompt_of(model, work)

    def ask(of: Sequence[Prompt]) -> Any:
        if work.kind == "generate":
            completions = engine.generate(of, soft, task.max_new_tokens, task.stop)
            return [completion.text.strip() for completion in completions]
        return [[one.logprob for one in scores.options] for scores in engine.score_choices(of, soft)]

    ask(prompts[:WARM_UP])
    engine._prefixes.clear()  # what the warm-up read is read again
    result: dict[str, Any] = {}
    before = engine.tokens_read
    with timed_calls(model, result), measured(result):
        result["answers"] = ask(prompts)
    tokens = engine.tokens_read - before
    engine._prefixes.clear()
    return result | {"tokens": tokens, "flops": operations(work, lambda: ask(prompts))}


def evaluate_harness(model: LoadedModel, work: Work, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """lm-evaluation-harness's `hf` model, given the same prompts."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    task, _ = work.load()
    harness: Any = HFLM(
        pretrained=model.model,
        tokenizer=model.tokenizer,
        batch_size=BATCH_SIZE,
        add_bos_token=model.bos_id is not None,
    )

    def ask(of: Sequence[Prompt]) -> Any:
        if work.kind == "generate":
            settings = {"until": list(task.stop), "max_gen_toks": task.max_new_tokens, "do_sample": False}
            requests = [
                Instance("generate_until", {}, (prompt.text, dict(settings)), index) for index, prompt in enumerate(of)
            ]
            return [text.strip() for text in harness.generate_until(requests, disable_tqdm=True)]
        pairs = [(prompt.text, continuation) for prompt in of for continuation in prompt.continuations]
        requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
        logprobs = iter(logprob for logprob, _ in harness.loglikelihood(requests, disable_tqdm=True))
        return [[next(logprobs) for _ in prompt.continuations] for prompt in of]

    ask(prompts[:WARM_UP])
    result: dict[str, Any] = {}
    with measured(result):
        result["answers"] = ask(prompts)
    tokens = sum(map(len, encode(model, [prompt.text for prompt in prompts])))
    return result | {"tokens": tokens}


CONTENDERS: dict[tuple[str, str], Callable[[LoadedModel, Work, Sequence[Prompt]], dict[str, Any]]] = {
    ("tune", "softbench"): tune_ours,
    ("tune", "peft"): tune_peft,
    ("choices", "softbench"): evaluate_ours,
    ("choices", "lm-eval"): evaluate_harness,
    ("generate", "softbench"): evaluate_ours,
    ("generate", "lm-eval"): evaluate_harness,
}


def main() -> None:
    """Arguments: model, dtype, threads, contender, and the work as JSON."""
    source, dtype, threads, contender, text = sys.argv[1:]
    torch.set_num_threads(int(threads))
    work = Work(**json.loads(text))
    model = load_model(source, dtype, "cpu")
    prompts = work.prompts()
    result = CONTENDERS[work.kind, contender](model, work, prompts)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
