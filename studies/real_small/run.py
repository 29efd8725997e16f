"""From models to tables, part by part.

Each part's outcomes are a file in the results, and a part whose file is there is not run again. A run that was stopped
goes on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import softbench
from softbench.runs import read_run
from studies.real_small.findings import find
from studies.real_small.outcomes import Row, read_rows, rows_of, write_rows
from studies.real_small.study import Form, Part, parts
from studies.real_small.tables import write_tables


def run(form: Form, models: Mapping[str, Mapping[str, Any]], out: Path, results: Path) -> None:
    """Run the parts whose outcomes are not yet in `results`, and write tables of all that are there after each."""
    for part in parts(form):
        path = results / f"{part.name}.jsonl"
        if not path.exists():
            write_rows(path, outcomes(form, part, models, out / part.folder))
        tabulate(form, results)


def outcomes(form: Form, part: Part, models: Mapping[str, Mapping[str, Any]], out: Path) -> list[Row]:
    """Run a part in `out`; a run that was stopped goes on."""
    settings = {**form.settings, **models[part.model]}
    source = {"name": part.model, "source": settings.pop("source")}
    asked = {"output_path": out, "limit": form.limit, "seeds": [part.seed], **settings}
    softbench.run([source], part.tasks, part.methods, **asked)
    return rows_of(part.folder, read_run(str(out / part.model)))


def tabulate(form: Form, results: Path) -> None:
    """Write the tables of all parts whose outcomes are in `results`."""
    done = [path for path in (results / f"{part.name}.jsonl" for part in parts(form)) if path.exists()]
    write_tables(find(form, [row for path in done for row in read_rows(path)]), results)
