"""Takes finished runs elsewhere: to a repository of the hub, or to an experiment tracker."""

import glob
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from softbench.errors import DataError, OutputError, SpecError, first_line
from softbench.runs import FinishedJob, newest_results
from softbench.untrusted import load_json, read_text

TRACKERS = ("wandb", "trackio")
"""Experiment trackers, by the modules that log to them: both offer init, log and finish."""

# Results, samples and what was tuned; records of jobs are in the samples, too.
PATTERNS = ("results_*.json", "samples_*.jsonl", "tuned/*/*", "tuned/*/*/*")


def files_of(run: Path) -> list[Path]:
    """The files of a run that `push` uploads, relative to its folder, sorted. Raises DataError where there is none."""
    folder = newest_results(run).parent
    whole = folder.resolve()
    # No links, and nothing that lies in a folder that is one.
    found = {path.relative_to(folder) for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if (folder / path).resolve() == whole / path)


def push(run: Path, repo_id: str, private: bool = False, revision: str | None = None) -> str:
    """Upload results, samples and soft prompts of `run` to the dataset repository `repo_id`; the commit's address.

    They go to a folder of the run's name. The repository is made where it does not exist. Raises OutputError where the
    hub refuses or can't be reached; nothing here changes.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    folder = newest_results(run).parent
    api = HfApi()
    try:
        api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            repo_type="dataset",
            folder_path=folder,
            path_in_repo=folder.name,
            allow_patterns=[glob.escape(str(path)) for path in files_of(run)],
            commit_message=f"softbench results of {folder.name}",
            revision=revision,
        )
    except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OSError) as error:
        raise OutputError(
            f"the hub did not take {str(folder)!r} into {repo_id!r} ({first_line(error)}); check name, HF_TOKEN and "
            "network"
        ) from error
    return str(commit.commit_url)


def log_run(run: Path, jobs: list[FinishedJob], tracker: str, project: str) -> Iterator[str]:
    """Log each job as one run of `project`: its settings, each step's tuning loss, and its metrics; gives their names.

    Raises SpecError where the tracker is not installed, and DataError at a card of a tuning that can't be read.
    """
    try:
        module: Any = importlib.import_module(tracker)
    except ImportError:
        raise SpecError(f"{tracker} is not installed: pip install {tracker}") from None
    losses = _losses(newest_results(run).parent / "tuned")
    for job in jobs:
        name = f"{job.model} {job.task} {job.label}"
        settings = {"model": job.model, "task": job.task, "method": job.label, "seed": job.block["seed"]}
        module.init(project=project, name=name, config={**settings, **job.block["settings"]})
        for step, loss in enumerate(losses.get(str(job.block["tuned_sha256"]), ()), start=1):
            module.log({"tuning_loss": loss}, step=step)
        values = {key: one["value"] for key, one in job.block["metrics"].items() if one["value"] is not None}
        module.log({**values, **{key: one for key, one in job.block["cost"].items() if one is not None}})
        module.finish()
        yield name


def _losses(tuned: Path) -> dict[str, list[float]]:
    """The loss of each tuning step, by the hash of what was tuned. Raises DataError at a card that can't be read."""
    found: dict[str, list[float]] = {}
    for path in sorted(tuned.glob("*/*.json")):
        try:
            card = load_json(read_text(path))
            found[str(card["sha256"])] = [float(loss) for loss in card["losses"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{str(path)!r} is no whole card of a tuning ({first_line(error)}); remove it to log the run without "
                "its losses"
            ) from error
    return found
