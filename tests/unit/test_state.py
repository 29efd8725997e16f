"""The state of a tuning on disk: whole or refused, written seldom, gone when the tuning is done."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from softbench.errors import OutputError
from softbench.methods import state as states
from softbench.methods.state import STATE, StateFile, from_bytes, remove_state, state_in, to_bytes
from softbench.types import TuningState

STATE_OF_TWO = TuningState(
    {"0/weight/vectors": np.arange(12, dtype=np.float32).reshape(3, 4), "0/generator": np.arange(7, dtype=np.uint8)},
    {"identity": "mine", "learners": [{"losses": [0.1, 2.5e-300]}]},
)


def silent(line: str) -> None:
    pytest.fail(line)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_a_state_comes_back_as_it_was() -> None:
    back = from_bytes(to_bytes(STATE_OF_TWO))
    assert back.values == STATE_OF_TWO.values
    assert back.arrays.keys() == STATE_OF_TWO.arrays.keys()
    for name, one in STATE_OF_TWO.arrays.items():
        assert back.arrays[name].dtype == one.dtype
        assert np.array_equal(back.arrays[name], one)


def test_a_state_with_any_byte_changed_is_refused() -> None:
    whole = to_bytes(STATE_OF_TWO)
    for place in range(len(whole)):
        for bit in (1, 128):
            with pytest.raises(ValueError, match="."):
                from_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    for length in (*range(0, len(whole), 7), len(whole) - 1):
        with pytest.raises(ValueError, match="."):
            from_bytes(whole[:length])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no whole state of a tuning ("),
        (to_bytes(STATE_OF_TWO)[:-1], "is no whole state of a tuning ("),
        (to_bytes(TuningState({}, {"identity": "another"})), "is the state of another tuning; tuning starts anew"),
    ],
)
def test_a_state_that_is_damaged_or_foreign_is_a_note(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(content)
    notes: list[str] = []
    assert StateFile(tmp_path / STATE, notes.append).find("mine") is None
    [note] = notes
    assert said in note
    assert note.endswith("tuning starts anew")


def test_where_nothing_was_kept_nothing_is_said(tmp_path: Path) -> None:
    assert StateFile(tmp_path / STATE, silent).find("mine") is None


def test_a_folder_in_the_place_of_a_state_is_a_note(tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()
    notes: list[str] = []
    assert StateFile(tmp_path / STATE, notes.append).find("mine") is None
    assert "can't be read (Is a directory); tuning starts anew" in notes[0]


@pytest.mark.parametrize("seconds_a_write", [0.0001, 0.2, 30.0])
def test_writes_take_a_hundredth_of_the_time_at_most(
    seconds_a_write: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, written = Clock(), list[Path]()

    def write(path: Path, data: bytes) -> None:
        clock.now += seconds_a_write
        written.append(path)

    monkeypatch.setattr(states, "time", clock)
    monkeypatch.setattr(states, "write_atomic", write)
    keeper = StateFile(tmp_path / STATE, silent)
    for _ in range(20_000):
        clock.now += 0.5  # a step
        keeper.keep(STATE_OF_TWO)
    assert len(written) > 2
    assert (len(written) - 1) * seconds_a_write <= 0.01 * clock.now
    assert len(written) <= clock.now / states.SECONDS


def tuning_ended_by(error: type[BaseException], folder: Path) -> None:
    with state_in(folder, silent) as keeper:
        keeper.keep(STATE_OF_TWO)
        assert not (folder / STATE).exists()  # it is not time yet
        raise error


def test_whatever_ends_a_tuning_early_leaves_its_last_step_on_disk(tmp_path: Path) -> None:
    for error in (KeyboardInterrupt, SystemExit, ValueError):
        with pytest.raises(error):
            tuning_ended_by(error, tmp_path / "here")
        found = StateFile(tmp_path / "here" / STATE, silent).find("mine")
        assert found is not None
        assert found.values == STATE_OF_TWO.values
        remove_state(tmp_path / "here")


def test_a_state_that_can_not_be_written_does_not_hide_what_ended_the_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OutputError("full")

    monkeypatch.setattr(states, "write_atomic", full)
    with pytest.raises(KeyboardInterrupt):
        tuning_ended_by(KeyboardInterrupt, tmp_path)
    monkeypatch.setattr(states, "SECONDS", -1.0)
    with pytest.raises(OutputError, match="full"):
        tuning_ended_by(KeyboardInterrupt, tmp_path)


def test_a_state_is_gone_when_the_tuning_is_done(tmp_path: Path) -> None:
    with state_in(tmp_path / "here", silent) as keeper:
        keeper.keep(STATE_OF_TWO)
        keeper.flush()
        assert (tmp_path / "here" / STATE).is_file()
    assert not (tmp_path / "here").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "card.json").write_text("{}")
    with state_in(tmp_path / "there", silent) as keeper:
        keeper.keep(STATE_OF_TWO)
        keeper.flush()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["card.json"]


@pytest.mark.parametrize("values", ["[]", "{", "null", json.dumps({"identity": "mine"})[:-1]])
def test_values_that_are_no_mapping_are_refused(values: str) -> None:
    digest = states._hash(values, {})
    data = safetensors.numpy.save({}, metadata={"values": values, "sha256": digest})
    with pytest.raises(ValueError, match="."):
        from_bytes(data)
