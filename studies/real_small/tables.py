"""The findings as files: findings.json for machines, tables.md for people."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from softbench.files import write_atomic, write_json
from softbench.stats.compare import ITEM_PARTS
from studies.markdown import block, percent, percents, rounded
from studies.real_small.findings import METHODS, SCORED, Findings


def write_tables(findings: Findings, folder: Path) -> None:
    """Write both files to `folder`."""
    found = rounded(asdict(findings))
    write_json(folder / "findings.json", found)
    write_atomic(folder / "tables.md", markdown(found).encode())


def markdown(findings: Mapping[str, Any]) -> str:
    """All tables, each under a heading."""
    columns = (*SCORED, "accuracy_given_format")
    blocks = [
        "# Real models: tables\n\nMade by `make study-real`; percent and points, with 95 % intervals. "
        f"Seeds: {', '.join(map(str, findings['seeds']))}.",
        block(
            "Scores",
            ("model", "method", *columns),
            [(row["model"], row["method"], *(percents(row[name]) for name in columns)) for row in findings["scores"]],
            "Means over tasks and seeds.",
        ),
        block(
            "The soft prompt minus other methods",
            ("model", "minus", "format-following", "over tasks", "accuracy", "over tasks", *ITEM_PARTS),
            [
                (
                    row["model"],
                    row["minus"],
                    *(
                        percents(row[name], "+.1f")
                        for measure in ("format_following", "accuracy")
                        for name in (measure, f"{measure}, over tasks")
                    ),
                    *(percents(row[name], "+.1f") for name in ITEM_PARTS),
                )
                for row in findings["differences"]
            ],
            "The last four add up to the difference in accuracy (docs/metrics.md). Over tasks: for tasks like these.",
        ),
        block(
            "Along tuning",
            ("model", "step", *columns, "saturated: form", "accuracy"),
            [
                (
                    row["model"],
                    row["step"],
                    *(percents(row[name]) for name in columns),
                    *(percent(row["saturated"][name]) for name in ("format_following", "accuracy")),
                )
                for row in findings["curves"]
            ],
            "Saturated: share of tasks that have come to what they end as.",
        ),
        block(
            "Controls, on the base model, one seed",
            ("method", "tasks", "format-following", "accuracy", "minus soft_prompt"),
            [
                (
                    row["method"],
                    row["tasks"],
                    percents(row["format_following"]),
                    percents(row["accuracy"]),
                    percents(row["minus soft_prompt"], "+.1f"),
                )
                for row in findings["controls"]
            ],
        ),
        block(
            "Tasks",
            ("model", "task", *METHODS),
            [
                (
                    row["model"],
                    row["task"],
                    *(
                        f"{percent(row[f'{method}, accuracy'])} ({percent(row[f'{method}, format_following'])})"
                        for method in METHODS
                    ),
                )
                for row in findings["tasks"]
            ],
            "Accuracy, and in brackets format-following; means over seeds.",
        ),
    ]
    return "\n\n".join(blocks) + "\n"
