"""What softbench depends on has bounds, and the lock that CI installs by says a version for all of it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()


def requirements(*lists: list[str]) -> list[Requirement]:
    """What others make; softbench's own extras are left out."""
    found = [Requirement(line) for of_list in lists for line in of_list]
    return [one for one in found if one.name != "softbench"]


EXTRAS = PROJECT["project"]["optional-dependencies"]
NEEDED = requirements(PROJECT["project"]["dependencies"])
ALL = NEEDED + requirements(PROJECT["build-system"]["requires"], *EXTRAS.values())
# What `make test` installs: the extras demo and dev, and those that they name.
TESTED = NEEDED + requirements(*(EXTRAS[name] for name in EXTRAS if name != "vllm"))


def unbounded(requirement: Requirement) -> bool:
    """Whether it would take any version, however old or new."""
    operators = {one.operator for one in requirement.specifier}
    return not (operators & {">=", ">", "==", "~="} and operators & {"<", "<=", "==", "~="})


def pinned() -> dict[str, str]:
    """The lock's versions by name."""
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LOCK)}


@pytest.mark.parametrize("requirement", ALL, ids=str)
def test_each_dependency_has_a_lower_and_an_upper_bound(requirement: Requirement) -> None:
    assert not unbounded(requirement)


@pytest.mark.parametrize("line", ["numpy", "numpy>=1", "numpy<3", "numpy!=2"])
def test_a_dependency_without_both_bounds_is_found(line: str) -> None:
    assert unbounded(Requirement(line))


def test_the_lock_has_names_and_versions_alone() -> None:
    """No file of one machine, no place to fetch from, no build's own label."""
    assert [line for line in LOCK if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert len(pinned()) == len(LOCK)


@pytest.mark.parametrize("requirement", TESTED, ids=str)
def test_the_lock_says_a_version_that_the_bounds_let_in(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pinned()[canonicalize_name(requirement.name)], prereleases=True)
