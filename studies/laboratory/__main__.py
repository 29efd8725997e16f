"""`python -m studies.laboratory`: the study, whole or small."""

import argparse
from pathlib import Path

from studies.laboratory.recipes import FORMS

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Read the command line and run the study."""
    parser = argparse.ArgumentParser(prog="python -m studies.laboratory", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="where models and runs go [out/laboratory]")
    parser.add_argument("--small", action="store_true", help="three models and few steps: a minute, and no findings")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each [2]")
    parser.add_argument("--results", type=Path, default=None, help="where tables go [results, or OUT/results if small]")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="RECIPE", help="run these recipes, and write no tables"
    )
    given = parser.parse_args()
    form = FORMS["small" if given.small else "full"]
    known = [recipe.name for recipe in form.recipes]
    unknown = [name for name in given.only if name not in known]
    if unknown:
        parser.error(f"recipe {unknown[0]!r} is unknown; known: {', '.join(known)}")
    if given.workers < 1:
        parser.error(f"--workers can't be {given.workers}; give 1 or more")
    from studies.laboratory.study import run

    out = given.out or Path("out/laboratory-small" if given.small else "out/laboratory")
    run(form, out, given.results or (out / "results" if given.small else RESULTS), given.workers, tuple(given.only))


if __name__ == "__main__":
    main()
