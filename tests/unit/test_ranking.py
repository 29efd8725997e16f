"""`softbench rank` on runs whose scores are made: who is paired with whom, and what comes out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softbench.errors import SpecError
from softbench.report.rank import pair_models, rank, ranking_dict, ranking_tables, warning
from softbench.runs import FinishedJob
from softbench.types import Completion, Prompt, Record, Sample, Status


def made_run(model: str, accuracy: dict[str, float], n: int = 400, seed: int = 0) -> list[FinishedJob]:
    """A run with jobs on two tasks whose samples are right at the given rates, harder ones in the same places."""
    generator = np.random.default_rng(seed)
    jobs = []
    for task in ("t", "u"):
        hard = generator.random(n)
        for label, rate in accuracy.items():
            records = tuple(record(str(place), right) for place, right in enumerate(hard < rate))
            jobs.append(FinishedJob(model, task, label, {}, {}, records))
    return jobs


def record(name: str, right: bool) -> Record:
    return Record(
        doc_id=int(name),
        sample=Sample(name, {}, ("A",)),
        method="m",
        seed=0,
        prompt=Prompt(name, "", ""),
        completion=Completion("", "eos", 1, 1),
        status=Status.OK,
        answer="A",
        correct=bool(right),
        lenient_answer=None,
        lenient_correct=None,
    )


POST = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
SHUFFLED = [0.5, 0.3, 0.8, 0.4, 0.9, 0.6, 0.7]
BASES = [made_run(f"m{i}", {"soft": x - 0.1, "shots": y}) for i, (x, y) in enumerate(zip(POST, SHUFFLED, strict=True))]
POSTS = [made_run(f"m{i}-it", {"zero_shot": x}, seed=1) for i, x in enumerate(POST)]


def test_a_method_that_ranks_as_the_post_trained_do_agrees_with_them() -> None:
    ranking = rank(BASES, POSTS, None, "zero_shot", seed=0)
    assert ranking.pairs[2] == ("m2", "m2-it")
    assert ranking.tasks == ["t", "u"]
    soft, shots = ranking.agreements["soft"], ranking.agreements["shots"]
    assert soft["kendall_tau"].estimate.value == pytest.approx(1.0)
    assert shots["kendall_tau"].estimate.value == pytest.approx(0.33, abs=0.2)
    assert (ranking.p_values["soft"] or 1) < 0.001
    assert soft["decision_accuracy"].estimate.value == 1.0
    assert soft["top1_regret"].estimate.value == 0.0
    assert shots["top1_regret"].estimate.value == pytest.approx(0.2, abs=0.06)
    difference = ranking.differences["soft", "shots"]
    assert difference.value == pytest.approx((shots["kendall_tau"].estimate.value or 0) - 1)
    assert difference.high is not None
    assert difference.high < 0
    assert ranking.scores["post"] == pytest.approx(POST, abs=0.06)


def test_predictor_and_predicted_share_no_sample() -> None:
    every_other = tuple(record(str(place), place % 2 == 0) for place in range(100))
    runs = [[FinishedJob(f"m{i}", "t", "zero_shot", {}, {}, every_other)] for i in range(3)]
    ranking = rank(runs, runs, None, "zero_shot", seed=0)
    assert ranking.scores == {"zero_shot": [1.0] * 3, "post": [0.0] * 3}


class Counted(Sequence[Record]):
    """Records that count how often they are read."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records, self.times = records, 0

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, place: Any) -> Any:
        return self.records[place]

    def __iter__(self) -> Iterator[Record]:
        self.times += 1
        return iter(self.records)


def test_a_ranking_reads_each_job_s_records_once() -> None:
    runs = [
        [replace(job, records=Counted(job.records)) for job in made_run(f"m{i}", {"zero_shot": 0.5, "soft": 0.6}, 20)]
        for i in range(3)
    ]
    rank(runs, runs[::-1], None, "zero_shot", seed=0)
    assert {job.records.times for run in runs for job in run if isinstance(job.records, Counted)} == {
        2
    }  # a base and a post


def test_models_are_paired_by_a_file_by_name_or_in_order(tmp_path: Path) -> None:
    names = [(base[0].model, post[0].model) for base, post in pair_models(BASES, POSTS, None)]
    assert names == [(f"m{i}", f"m{i}-it") for i in range(7)]
    (tmp_path / "pairs.yaml").write_text("".join(f"m{i}: m{6 - i}-it\n" for i in range(7)))
    by_file = pair_models(BASES, POSTS, tmp_path / "pairs.yaml")
    assert by_file[0][1][0].model == "m6-it"
    same = [made_run(f"m{i}", {"zero_shot": 0.5}) for i in (3, 2, 1, 0)]
    assert [post[0].model for _, post in pair_models(BASES[:4], same, None)] == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("bases", "posts", "mapping", "method", "message"),
    [
        (BASES[:2], POSTS[:2], None, "zero_shot", "2 base models came; a ranking needs three at least"),
        (BASES, POSTS[:5], None, "zero_shot", "7 base and 5 post-trained models can't be paired in order"),
        (BASES, POSTS, "m0: m0-it", "zero_shot", "base model 'm1' has no post-trained one; there are m0-it, "),
        (BASES, POSTS, "[", "zero_shot", "mapping file .* can't be read"),
        (BASES, POSTS, "a", "zero_shot", "must hold lines"),
        (BASES, POSTS, None, "few_shot", "m0-it has no few_shot on t; choose another --post-method"),
        (BASES, [made_run(f"n{i}", {"zero_shot": 0.5}, n=9) for i in range(7)], None, "zero_shot", "different samples"),
    ],
)
def test_what_can_not_be_ranked_is_refused(
    bases: list[list[FinishedJob]],
    posts: list[list[FinishedJob]],
    mapping: str | None,
    method: str,
    message: str,
    tmp_path: Path,
) -> None:
    path = None if mapping is None else tmp_path / "pairs.yaml"
    if path is not None:
        path.write_text(mapping or "")
    with pytest.raises(SpecError, match=message):
        rank(bases, posts, path, method, seed=0)


def test_few_models_are_warned_of() -> None:
    ranking = rank(BASES, POSTS, None, "zero_shot", seed=0)
    assert "with 7 models a tau of 0.71 or more passes the 5 % level" in (warning(ranking) or "")
    assert "with 3 models no tau passes" in (warning(rank(BASES[:3], POSTS[:3], None, "zero_shot", 0)) or "")
    assert len(ranking_tables(ranking)) == 4
    assert set(ranking.by_task) == {"t", "u"}
    assert ranking.by_task["u"]["soft"].estimate.value == pytest.approx(1.0, abs=0.1)
    assert set(ranking_dict(ranking)["agreements"]) == {"soft", "shots"}
