"""`python -m studies.real_small`: the study on real models."""

import argparse
from pathlib import Path

from studies.real_small.run import run
from studies.real_small.study import FULL, sources

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Read the command line and run the study."""
    parser = argparse.ArgumentParser(prog="python -m studies.real_small", description=__doc__)
    parser.add_argument(
        "--gemma", required=True, metavar="FILE", help="Gemma 3 270M: what scripts/demo_model.py prints"
    )
    parser.add_argument("--out", type=Path, default=Path("out/real_small"), help="where runs go [%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where tables go [results]")
    given = parser.parse_args()
    run(FULL, sources(given.gemma), given.out, given.results)


if __name__ == "__main__":
    main()
