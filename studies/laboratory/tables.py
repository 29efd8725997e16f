"""The findings as files: findings.json and models.csv for machines, tables.md for people."""

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from softbench.files import write_atomic, write_json
from studies.laboratory.analysis import CONTROLS, METHODS, Findings
from studies.markdown import block, interval, number, percent, rounded


def write_tables(findings: Findings, folder: Path) -> None:
    """Write the three files to `folder`."""
    found = rounded(asdict(findings))
    write_json(folder / "findings.json", found)
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, list(found["models"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found["models"])
    write_atomic(folder / "models.csv", sheet.getvalue().encode())
    write_atomic(folder / "tables.md", markdown(found).encode())


def markdown(findings: Mapping[str, Any]) -> str:
    """All tables, each under a heading."""
    agreement, ranking = findings["tracks_truth"], findings["ranks_post"]
    blocks = [
        "# The laboratory: tables\n\nMade by `python -m studies.laboratory`; brackets are 95 % intervals.",
        block(
            "Models",
            ("recipe", "parameters", "true knowledge", *METHODS, "post-trained"),
            [
                (
                    row["recipe"],
                    f"{row['parameters'] / 1e6:.1f} M",
                    percent(row["true_knowledge"]),
                    *(f"{percent(row[method])} ({percent(row[f'{method}_form'])})" for method in METHODS),
                    percent(row["post"]),
                )
                for row in findings["models"]
            ],
            "Accuracy, and in brackets format-following; means over the seven tasks and over seeds.",
        ),
        block(
            "Tasks",
            ("task", "true knowledge", *METHODS, "post-trained"),
            [
                (
                    row["task"],
                    percent(row["true knowledge"]),
                    *(
                        f"{percent(row[f'{method}, right'])} ({percent(row[f'{method}, form'])})"
                        for method in (*METHODS, "post")
                    ),
                )
                for row in findings["tasks"]
            ],
            "Accuracy, and in brackets format-following; means over models.",
        ),
        block(
            "Scores of base models against their true knowledge",
            ("method", "Pearson", "Spearman", "Kendall's tau", "mean absolute error"),
            [
                (
                    method,
                    *(interval(of_method[name]) for name in ("pearson", "spearman", "kendall_tau")),
                    interval(agreement["mean_absolute_error"][method]),
                )
                for method, of_method in agreement["agreement"].items()
            ]
            + [
                (pair, *(interval(of_pair[name], "+.2f") for name in ("pearson", "spearman", "kendall_tau")), "")
                for pair, of_pair in agreement["differences"].items()
            ],
            "Intervals over people and models.",
        ),
        block(
            "What is shown of known and of unknown facts",
            ("method", "right, of known facts", "right, of unknown facts"),
            [
                (method, interval(of_method["of known facts"]), interval(of_method["of unknown facts"]))
                for method, of_method in findings["shown"].items()
            ],
            "Tasks in which a value is written. A fact is known where the right value is the likeliest one behind the "
            "statement.",
        ),
        block(
            "Scores of base models against the ranking of post-trained models",
            ("predictor", "Kendall's tau", "p", "pairs in order", "regret of the first", "reliability"),
            [
                (
                    method,
                    interval(of_method["kendall_tau"]["estimate"]),
                    number(ranking["p_of_tau"][method], ".3g"),
                    interval(of_method["decision_accuracy"]["estimate"]),
                    interval(of_method["top1_regret"]["estimate"], ".3f"),
                    number(ranking["reliability"][method], ".2f"),
                )
                for method, of_method in ranking["agreement"].items()
            ],
            "Predictor and predicted are scored on different people. Intervals over people.",
        ),
        block(
            "Differences of Kendall's tau",
            ("", "over people", "over people and models"),
            [
                (pair, interval(one["over people"], "+.2f"), interval(one["over people and models"], "+.2f"))
                for pair, one in ranking["differences"].items()
            ],
        ),
        block(
            "Does tuning teach answers?",
            ("method", "format-following", "accuracy", "minus soft_prompt"),
            [
                (
                    method,
                    interval(findings["controls"][method]["format_following"]),
                    interval(findings["controls"][method]["accuracy"]),
                    interval(findings["controls"][method]["minus soft_prompt"], "+.3f"),
                )
                for method in (*METHODS, *CONTROLS)
            ],
            "Means over models and tasks. shuffled: tuned on other questions' answers; format: on the form alone; "
            "strange: on facts that no model has read; lora: an adapter in place of the soft prompt.",
        ),
        block(
            "Facts that were tuned on, and others",
            ("", "value"),
            [
                (name, interval(value, "+.3f" if name == "excess" else ".3f"))
                for name, value in findings["seen"].items()
                if name != "people"
            ],
            "excess: by how much accuracy is above true knowledge on facts tuned on, less the same on others.",
        ),
        block(
            "Along pre-training",
            ("pre-training", "method", "mean score", "tau with final truth", "pairs as final truth", "as its own end"),
            [
                (
                    f"{row['percent']} %",
                    row["method"],
                    percent(row["mean"]),
                    number(row["tau_with_truth"], ".2f"),
                    number(row["decides_as_truth"], ".2f"),
                    number(row["decides_as_own_end"], ".2f"),
                )
                for row in findings["early"]
            ],
        ),
        block(
            "Along tuning",
            ("step", "samples", "format-following", "accuracy", "accuracy given format", "saturated: form", "accuracy"),
            [
                (
                    row["step"],
                    row["samples"],
                    interval(row["format_following"]),
                    interval(row["accuracy"]),
                    interval(row["accuracy_given_format"]),
                    percent(row["saturated"]["format_following"]),
                    percent(row["saturated"]["accuracy"]),
                )
                for row in findings["curves"]
            ],
            "Tasks in which something is written, means over models. Saturated: share of models that have come to what "
            "they end as.",
        ),
    ]
    return "\n\n".join(blocks) + "\n"
