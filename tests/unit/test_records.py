import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softbench.errors import DataError, OutputError
from softbench.record_reading import iter_records, line_to_record
from softbench.records import RecordFile, record_to_line
from softbench.saved_records import SavedRecords
from softbench.types import ChoiceScore, Completion, Prompt, Record, Sample, Status

STOP = ("\n",)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False, max_value=0)


@st.composite
def records(draw: st.DrawFn) -> Record:
    num_choices = draw(st.integers(0, 4))
    generates = draw(st.booleans()) or num_choices == 0
    sample = Sample(
        id=draw(texts),
        fields=draw(st.dictionaries(texts, texts, max_size=3)),
        answers=(draw(texts), *draw(st.lists(texts, max_size=2))),
        choices=tuple(draw(st.lists(texts, min_size=num_choices, max_size=num_choices))),
        gold=0 if num_choices else None,
    )
    status = draw(st.sampled_from(list(Status))) if generates else None
    scores = tuple(
        ChoiceScore(draw(floats), 2, draw(st.booleans()), draw(st.none() | floats)) for _ in range(num_choices)
    )
    return Record(
        doc_id=draw(st.integers(0, 10**6)),
        sample=sample,
        method="soft_prompt_s1",
        seed=draw(st.integers(0, 2**62)),
        prompt=Prompt(sample.id, draw(texts), draw(texts), tuple(draw(texts) for _ in range(num_choices))),
        completion=Completion(draw(texts), "stop", 3, 4) if generates else None,
        status=status,
        answer=draw(texts) if status is Status.OK else None,
        correct=draw(st.booleans()) if generates else None,
        lenient_answer=draw(st.none() | texts) if generates else None,
        lenient_correct=draw(st.booleans()) if generates else None,
        choice_scores=scores,
        choice_correct={"raw": draw(st.booleans()), "per_char": draw(st.booleans())} if num_choices else {},
        answer_mass=draw(st.none() | st.floats(0, 1)),
        top_token=draw(st.none() | texts),
        top_options=tuple(draw(st.lists(st.integers(0, 3), max_size=2))),
    )


def simple(doc_id: int, text: str = "hm") -> Record:
    sample = Sample(f"s{doc_id}", {"q": "what?"}, ("A",))
    completion = Completion(text, "eos", 2, 3)
    return Record(
        doc_id,
        sample,
        "zero_shot",
        0,
        Prompt(sample.id, "p", " A"),
        completion,
        Status.NO_ANSWER,
        None,
        False,
        None,
        False,
    )


@given(records())
def test_a_record_comes_back_from_its_line(record: Record) -> None:
    line = record_to_line(record, STOP, 16)
    assert line.count("\n") == 1
    assert line_to_record(line.encode()) == record


def test_a_line_has_the_harness_keys() -> None:
    line = json.loads(record_to_line(simple(3), STOP, 16))
    harness = {
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
        "prompt_hash", "target_hash", "accuracy",
    }  # fmt: skip
    assert harness <= line.keys()
    assert line["resps"] == [["hm"]]
    assert line["arguments"]["gen_args_0"]["arg_1"]["until"] == ["\n"]
    assert all(name in line for name in line["metrics"])


@pytest.mark.parametrize("line", ["{", "[]", '{"doc_id": 1}', "null", "1e999"])
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    with pytest.raises(DataError, match="r.jsonl, line 2 "):
        list(iter_records(io.BytesIO((record_to_line(simple(1), STOP, 16) + line + "\n").encode()), "r.jsonl"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"doc_id": 1', '"doc_id": 7, "doc_id": 1', "key 'doc_id' is given twice"),
        ('"seed": ', '"seed": null, "seed": ', "key 'seed' is given twice"),
        ('"metrics": [', '"metrics": [NaN, ', "NaN is no number"),
    ],
)
def test_a_line_that_can_be_read_in_two_ways_is_not_read(old: str, new: str, message: str) -> None:
    line = record_to_line(simple(1), STOP, 16)
    assert old in line
    with pytest.raises(DataError, match=message):
        list(iter_records(io.BytesIO(line.replace(old, new, 1).encode()), "r.jsonl"))


def test_a_file_is_picked_up_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    RecordFile(path).append([simple(0), simple(1), simple(2)], STOP, 16)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        file = RecordFile(path)
        assert file.has([0, 1, 2]) is False
        file.append([simple(0), simple(1), simple(2)], STOP, 16)
        assert path.read_bytes() == whole
    assert [record.doc_id for record in SavedRecords(path, 3)] == [0, 1, 2]


def test_a_file_knows_the_samples_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    RecordFile(path).append([simple(4), simple(2)], STOP, 16)
    file = RecordFile(path)
    file.append([simple(2), simple(3)], STOP, 16)
    assert file.has([2, 3])
    assert not file.has([2, 5])
    assert [json.loads(line)["doc_id"] for line in path.read_text().splitlines()] == [4, 2, 3]


def test_a_folder_that_is_gone_is_one_clear_error(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "job" / "records.jsonl")
    (tmp_path / "job" / "records.jsonl").unlink()
    (tmp_path / "job").rmdir()
    with pytest.raises(OutputError, match="can't be written"):
        file.append([simple(0)], STOP, 16)
