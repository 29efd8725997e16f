"""The laboratory's world, prose, tasks and measure of knowledge hold what its findings stand on."""

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from softbench.engines.transformers import TransformersEngine
from softbench.models import LoadedModel
from softbench.tasks import get_task, load_data
from softbench.types import Prompt
from studies.laboratory.analysis import Draws
from studies.laboratory.knowledge import knowledge
from studies.laboratory.outcomes import read_outcomes
from studies.laboratory.posttrain import _padded
from studies.laboratory.pretrain import IGNORED, Schedule, fit, pretrain
from studies.laboratory.prose import Knobs, documents, is_rare, options_of, questions_and_answers
from studies.laboratory.recipes import FULL, SMALL, Recipe
from studies.laboratory.tasks import FORMS, POST, SEEN, STRANGE, facts_of, write_tasks
from studies.laboratory.tokenizer import for_model, train_tokenizer
from studies.laboratory.world import NUM_VALUES, NUM_WORDINGS, World, generator_of, make_world
from tests.tiny import ARCHITECTURES


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SMALL.people, 0)


@pytest.fixture(scope="module")
def tokenizer(world: World) -> Tokenizer:
    return train_tokenizer(world, 0)


@pytest.fixture(scope="module")
def tasks(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(world, folder, 0)
    return folder


def some(world: World, knobs: Knobs, count: int = 400, name: str = "a") -> list[str]:
    return list(itertools.islice(documents(world, knobs, 0, name), count))


def test_a_seed_makes_one_world_and_another_seed_another(world: World) -> None:
    assert make_world(SMALL.people, 0) == world
    assert make_world(SMALL.people, 1).people != world.people


def test_no_two_things_of_the_whole_world_have_one_name() -> None:
    world = make_world(FULL.people, 0)
    names = [person.name for person in world.people]
    names += [name for place in world.places for name in (place.name, place.region, place.river)]
    names += [value for one in world.attributes if one.name in ("employer", "mentor") for value in one.values]
    assert len(set(names)) == len(names)


def test_each_attribute_has_as_many_values_and_wordings_with_the_value_last(world: World) -> None:
    for attribute in world.attributes:
        assert len(set(attribute.values)) == NUM_VALUES
        assert len(set(attribute.statements)) == NUM_WORDINGS
        for statement in attribute.statements:
            assert statement.index("{name}") < statement.index("{value}")
            assert statement.endswith(" {value}.")


def test_the_same_recipe_reads_the_same_prose_and_another_name_other_prose(world: World) -> None:
    assert some(world, Knobs()) == some(world, Knobs())
    assert some(world, Knobs()) != some(world, Knobs(), name="b")


def test_nothing_is_said_of_strangers_and_only_talked_people_are_asked_about(world: World) -> None:
    texts = some(world, Knobs(question_share=0.4, filler_share=0.4), 2000)
    strangers = {person.name for person in world.group("stranger")}
    others = {person.name for person in world.people if person.group != "talked"}
    met = [text for text in texts if any(name in text for name in strangers)]
    assert met
    assert all(" met " in text for text in met)
    asked = [questions_and_answers(world, generator_of(0, str(number))) for number in range(300)]
    assert not any(name in text for name in others for text in asked)


def test_every_statement_is_true(world: World) -> None:
    texts = " ".join(some(world, Knobs(question_share=0.0, filler_share=0.0)))
    for person in world.group("test"):
        for attribute in world.attributes:
            said = [
                one for one in attribute.values if attribute.statements[0].format(name=person.name, value=one) in texts
            ]
            assert said in ([], [person.facts[attribute.name]])


def test_rare_facts_come_up_as_rarely_as_the_recipe_says(world: World) -> None:
    knobs = Knobs(rare_share=0.5, rare_rate=0.25, num_wordings=1, question_share=0.0, filler_share=0.0)
    people = world.group("test", "validation", "tune", "post", "talked")
    counts: Counter[bool] = Counter()
    facts: Counter[bool] = Counter()
    texts = " ".join(some(world, knobs, 40 * len(people)))
    for person, attribute in itertools.product(people, world.attributes):
        rare = is_rare(person, attribute, 0.5, 0)
        facts[rare] += 1
        counts[rare] += texts.count(
            attribute.statements[0].format(name=person.name, value=person.facts[attribute.name])
        )
    assert counts[False] / facts[False] == pytest.approx(40, rel=0.05)
    assert counts[True] / facts[True] == pytest.approx(10, rel=0.15)


def test_a_larger_share_of_rare_facts_has_all_of_a_smaller_one(world: World) -> None:
    pairs = list(itertools.product(world.people, world.attributes))
    few, many = ({(p.name, a.name) for p, a in pairs if is_rare(p, a, share, 0)} for share in (0.2, 0.6))
    assert few < many


def test_a_recipe_with_no_questions_holds_no_question(world: World) -> None:
    assert not any("?" in text for text in some(world, Knobs(question_share=0.0)))
    assert any("?" in text for text in some(world, Knobs(question_share=0.2)))


def test_the_right_option_may_stand_anywhere(world: World) -> None:
    attribute = world.attributes[1]
    answer = attribute.values[0]
    places: Counter[int] = Counter()
    for number in range(400):
        options, gold = options_of(attribute, answer, generator_of(0, str(number)))
        assert options[gold] == answer
        assert len(set(options)) == 4
        places[gold] += 1
    assert min(places.values()) > 60


def test_names_and_values_are_single_tokens_and_every_text_comes_back(tokenizer: Tokenizer, world: World) -> None:
    words = [person.name for person in world.people] + [value for one in world.attributes for value in one.values]
    lengths = [len(tokenizer.encode(f" {word}").ids) for word in words]
    assert np.mean(lengths) < 1.05
    for text in (' {"answer": "Zwimo"}\n', r" \boxed{é}", *some(world, Knobs(), 20)):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_tokenizer_puts_bos_where_its_family_does(tokenizer: Tokenizer) -> None:
    for adds_bos in (True, False):
        own = for_model(tokenizer, adds_bos, 512)
        assert (own("a").input_ids[0] == own.bos_token_id) is adds_bos


@pytest.mark.parametrize("name", [name + ending for name in FORMS for ending in ("", STRANGE, SEEN, POST)])
def test_golds_parse_and_no_person_is_in_two_splits(tasks: Path, name: str) -> None:
    data = load_data(get_task(str(tasks / f"{name}.yaml")), None)  # raises where a gold does not come back
    people = [{one.id.partition("-")[0] for one in split} for split in (data.tune, data.validation, data.test)]
    assert not any(one & other for one, other in itertools.combinations(people, 2))
    assert data.test
    assert sum(data.dropped.values()) == 0


def test_each_test_fact_is_asked_in_exactly_one_task(tasks: Path, world: World) -> None:
    ids = [one.id for name in FORMS for one in load_data(get_task(str(tasks / f"{name}.yaml")), None).test]
    assert sorted(ids) == sorted(fact.id for fact in facts_of(world.group("test"), world))
    assert len(set(ids)) == len(ids)


def test_the_three_families_share_what_they_should(tasks: Path) -> None:
    def data(name: str) -> object:
        return load_data(get_task(str(tasks / f"{name}.yaml")), None)

    main, strange, seen = data("lab_json"), data("lab_json_strange"), data("lab_json_seen")
    assert main.test == strange.test  # type: ignore[attr-defined]
    assert not {one.id for one in main.tune} & {one.id for one in strange.tune}  # type: ignore[attr-defined]
    assert {one.id for one in seen.test} < {one.id for one in main.tune}  # type: ignore[attr-defined]


def test_the_same_seed_writes_the_same_task_files(tasks: Path, world: World, tmp_path: Path) -> None:
    write_tasks(world, tmp_path, 0)
    files = sorted(path.relative_to(tasks) for path in tasks.rglob("*.*"))
    assert len(files) == 7 * 4 + 7 * 6
    assert all((tmp_path / path).read_bytes() == (tasks / path).read_bytes() for path in files)


def test_knowledge_agrees_with_the_engine_s_log_likelihoods(tiny: Callable[[str], LoadedModel], world: World) -> None:
    facts = facts_of(world.group("test"), world)[:10]
    for architecture in ARCHITECTURES:
        loaded = tiny(architecture)
        prompts = [
            Prompt(
                fact.id,
                " " + fact.attribute.statements[0].partition(" {value}")[0].format(name=fact.person.name),
                "",
                tuple(f" {value}." for value in fact.attribute.values),
            )
            for fact in facts
        ]
        scores = TransformersEngine(loaded, 8).score_choices(prompts, None)
        for one, fact, of_prompt in zip(knowledge(loaded, facts), facts, scores, strict=True):
            logprobs = [option.logprob for option in of_prompt.options]
            right = logprobs.pop(fact.attribute.values.index(fact.answer))
            assert one.margin == pytest.approx(right - max(logprobs), abs=1e-3)
            assert one.right == (one.margin > 0)


def test_a_killed_pretraining_ends_with_the_same_bytes(
    world: World, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.laboratory.pretrain.SAVE_EVERY", 2)
    recipe = Recipe("r", "gemma", 5, width=32, layers=2)
    pretrain(recipe, world, tokenizer, tmp_path / "whole", (40,), 0)

    def kill(self: Schedule, step: int) -> float:
        if step == 3:
            raise KeyboardInterrupt
        return real(self, step)

    real = Schedule.rate
    monkeypatch.setattr(Schedule, "rate", kill)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, world, tokenizer, tmp_path / "killed", (40,), 0)
    assert list((tmp_path / "killed" / ".states").iterdir())
    monkeypatch.setattr(Schedule, "rate", real)
    pretrain(recipe, world, tokenizer, tmp_path / "killed", (40,), 0)
    for name in ("r-step40", "r-step100"):
        whole, killed = (tmp_path / place / name / "model.safetensors" for place in ("whole", "killed"))
        assert whole.read_bytes() == killed.read_bytes()


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen", "gemma"])
def test_every_architecture_is_of_1_to_10_million_parameters_and_learns(architecture: str) -> None:
    import transformers

    for recipe in FULL.recipes:
        if recipe.architecture == architecture:
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(recipe.config(2560, 1, 2, 0))
            assert 1e6 <= sum(one.numel() for one in model.parameters()) <= 1e7
    torch.manual_seed(0)
    small = Recipe("r", architecture, 8, width=32, layers=2)  # type: ignore[arg-type]
    model = transformers.AutoModelForCausalLM.from_config(small.config(50, 1, 2, 0))
    ids = torch.arange(40).view(2, 20)
    losses = fit(model, lambda step: (ids, ids.roll(-1)), Schedule(8, 1e-2, 2), lambda step: None)
    assert losses[-1] < losses[0] - 0.5


def test_post_training_learns_the_answer_alone() -> None:
    ids, following = _padded([([1, 2, 3, 4], 2), ([5, 6], 1)], 9)
    assert ids.tolist() == [[1, 2, 3], [5, 9, 9]]
    assert following.tolist() == [[IGNORED, 3, 4], [6, IGNORED, IGNORED]]


def test_full_form_varies_knowledge_and_practice_apart() -> None:
    assert len(FULL.recipes) >= 12
    assert len({recipe.name for recipe in FULL.recipes}) == len(FULL.recipes)
    steps = np.array([recipe.steps for recipe in FULL.recipes])
    practice = np.array([recipe.knobs.question_share for recipe in FULL.recipes])
    assert abs(np.corrcoef(steps, practice)[0, 1]) < 0.25


def test_scores_of_a_table_are_means_over_tasks_and_people() -> None:
    draws = Draws(2, 4, 500, 0)
    outcome = np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, np.nan, 1.0]])
    table = draws.table([outcome, np.ones((2, 4))])
    assert table.scores.tolist() == [(0.5 + 0 + 1 + 1) / 4, 1.0]
    assert table.drawn[:, 1] == pytest.approx(1.0)
    assert table.drawn[:, 0].std() == pytest.approx(np.std([0.5, 0, 1, 1]) / 2, rel=0.15)


def test_outcomes_are_averaged_over_seeds_and_unknown_stays_unknown() -> None:
    kept = json.loads(json.dumps([{"right": ["10", "11"], "form": ["1-", "--"], "lenient": ["00", "00"]}] * 2))
    kept[1]["right"] = ["00", "11"]
    outcome = read_outcomes({"few_shot": kept})["few_shot"]
    assert outcome.measures["right"].tolist() == [[0.5, 0.0], [1.0, 1.0]]
    assert np.isnan(outcome.measures["form"]).tolist() == [[False, True], [True, True]]
    assert outcome.by_seed == (0.75, 0.5)
