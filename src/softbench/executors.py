"""Where a run's jobs are done: one after another in this process, or side by side on the machines of a Ray cluster.

Under Ray this process is the driver. It cuts the plan into units, hands them to workers and writes the results; workers
make the same plan for themselves, keep one model open, and write records where a serial run would. A worker that is
lost costs the chunk it was at: another one goes on from its records.
"""

import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from softbench import pipeline
from softbench.backends import Backend
from softbench.errors import ClusterError, OutputError, SoftbenchError, SpecError, first_line
from softbench.pipeline import Job
from softbench.results import JobResult, Results, write_results
from softbench.spec import Spec
from softbench.types import Advance, ModelInfo, Progress

MAX_RETRIES = 3
"""How often a unit goes to another worker before the run gives up."""

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_ANSWER = 10.0
GIB = 1 << 30


class Executor(Protocol):
    """Does all jobs of a spec and writes their results; which one does them changes no result."""

    def __call__(self, spec: Spec, progress: Progress) -> list[Results]:
        """Return one Results a model. Raises SoftbenchError at anything that keeps the run from going on."""
        ...


def run(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` by the executor that it names."""
    return EXECUTORS[spec.executor](spec, progress)


def run_serial(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` in this process."""
    return pipeline.run(spec, progress)


def run_ray(spec: Spec, progress: Progress) -> list[Results]:
    """Run `spec` on a Ray cluster, whose machines all see the output folder at the same path.

    Raises ClusterError where the cluster can't be used, and the first SoftbenchError that a worker meets.
    """
    ray = import_ray()
    tasks = pipeline.load_tasks(spec, progress)
    pipeline.check_output(spec.output_path)
    planned = pipeline.plan(spec, tasks)
    units = cut(spec, planned)
    infos: dict[int, ModelInfo] = {}
    finished: dict[int, dict[int, JobResult]] = {place: {} for place in range(len(spec.models))}
    results: dict[int, Results] = {}
    started = time.perf_counter()
    with (
        pipeline.locked_folders(spec) as checks,
        connected(ray, spec.ray_address),
        progress.track("jobs on Ray", sum(len(unit.jobs) for unit in units)) as advance,
        closing(on_workers(ray, spec, units, progress, advance)) as outcomes,
    ):
        for unit, info, of_unit in outcomes:
            advance(len(unit.jobs), f"{unit.name} is done")
            if infos.setdefault(unit.model, info) != info:
                raise ClusterError(differing(infos[unit.model], info))
            of_model = finished[unit.model]
            for place, values in zip(unit.jobs, of_unit, strict=True):
                of_model[place] = JobResult(task=planned[place].task, data=planned[place].data, **values)
            if len(of_model) == len(planned):
                jobs = [of_model[place] for place in range(len(planned))]
                folder = pipeline.model_folder(spec.models[unit.model], spec)
                checks[unit.model]()
                results[unit.model] = write_results(folder, info, spec, jobs, time.perf_counter() - started)
    return [results[place] for place in sorted(results)]


EXECUTORS: dict[str, Executor] = {"serial": run_serial, "ray": run_ray}


def import_ray() -> Any:
    """The package ray, which is an extra. Raises SpecError where it is missing."""
    try:
        import ray
    except ImportError:
        raise SpecError("executor 'ray' needs Ray, which is not installed: pip install 'softbench[ray]'") from None
    return ray


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does in one go: jobs of one model, in order. Both are places, in the spec and in the plan."""

    model: int
    jobs: tuple[int, ...]
    name: str


def cut(spec: Spec, planned: Sequence[Job]) -> list[Unit]:
    """The units of a run. Jobs that may share a folder, such as checkpoints of one tuning, are one; so are all of a
    model where they are tuned together."""
    groups: dict[str, list[int]] = {}
    for place, job in enumerate(planned):
        groups.setdefault("" if spec.tune_together else shared_by(job), []).append(place)
    return [
        Unit(place, tuple(jobs), f"{model.label} {planned[jobs[0]].task.name} {planned[jobs[0]].label}")
        for place, model in enumerate(spec.models)
        for jobs in groups.values()
    ]


def shared_by(job: Job) -> str:
    """Equal for jobs that may tune the same, or come to the same records."""
    settings = pipeline.tuning_settings(job)
    settings.pop("soft_prompt", None)  # two folders may hold the same vectors
    return json.dumps([job.task.name, settings, job.seed], sort_keys=True)


def differing(one: ModelInfo, other: ModelInfo) -> str:
    """Says that two workers opened one model differently, and in what."""
    name = next(field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name))
    return (
        f"workers opened model {one.name!r} differently: {name} {getattr(one, name)!r} and {getattr(other, name)!r}; "
        "give all machines the same files, and say --device, --dtype and --num-gpus"
    )


@contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to the cluster at `address`, or start a Ray on this machine; as it is where there is a connection.

    Raises ClusterError where no cluster answers.
    """
    if ray.is_initialized():
        yield
        return
    # A Ray of our own has no dashboard and sends nobody statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    where = {"address": "local", "include_dashboard": False} if address is None else {"address": address}
    try:
        knock(address)
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise ClusterError(
            f"no Ray cluster can be used at {address or 'this machine'!r} ({reason}); give the host:port that "
            "`ray start --head` prints, or auto"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def knock(address: str | None) -> None:
    """Raise OSError where nothing listens at `address`, HOST:PORT: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()


def request(ray: Any, spec: Spec) -> dict[str, float]:
    """What a worker asks Ray for: by default a core, and a GPU where the cluster has some and the run may use them."""
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0 and spec.device != "cpu"
    asked: dict[str, float] = {
        "num_cpus": spec.num_cpus or 1,
        "num_gpus": float(has_gpus) if spec.num_gpus is None else spec.num_gpus,
    }
    return asked if spec.memory is None else asked | {"memory": int(spec.memory * GIB)}


def room(nodes: Sequence[Mapping[str, Any]], asked: Mapping[str, float]) -> int:
    """How many workers fit on the cluster. Raises ClusterError where no machine has what one asks for."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    fitting = sum(
        min(int(machine.get(names[name], 0) / amount) for name, amount in asked.items() if amount)
        for machine in machines
    )
    if not fitting:
        wanted = ", ".join(f"{names[name]} {in_units(name, amount)}" for name, amount in asked.items() if amount)
        most = ", ".join(
            f"{names[name]} {in_units(name, max(machine.get(names[name], 0) for machine in machines))}"
            for name, amount in asked.items()
            if amount
        )
        raise ClusterError(
            f"no machine of the cluster has room for a job: it asks for {wanted}, and the most that any machine has "
            f"is {most}; ask for less (--num-cpus, --num-gpus, --memory)"
        )
    return fitting


def in_units(name: str, amount: float) -> str:
    """An amount of a resource for people."""
    return f"{amount / GIB:.1f} GiB" if name == "memory" else f"{amount:g}"


Outcome = tuple[ModelInfo, list[dict[str, Any]]]
"""What a worker found: about the model, and each job's JobResult without task and data, which the driver has."""


def on_workers(
    ray: Any, spec: Spec, units: Sequence[Unit], progress: Progress, advance: Advance
) -> Generator[tuple[Unit, ModelInfo, list[dict[str, Any]]]]:
    """Have all `units` done, and yield each with what it came to as soon as it is done.

    Raises what a worker raised, and ClusterError where a unit's workers were lost more than MAX_RETRIES times. All
    workers are gone when this ends.
    """
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = request(ray, spec)
    num_workers = min(len(units), room(ray.nodes(), asked))
    # The board must not be lost with another machine: it stays on the driver's.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
    make_worker = ray.remote(Worker).options(**asked)
    environment = {name: value for name, value in os.environ.items() if name.startswith(("HF_", "SOFTBENCH_"))}
    left = list(units)
    lost: Counter[Unit | None] = Counter()
    waiting: dict[Any, tuple[Any, Unit | None]] = {}  # by what is waited for: a worker, and its unit if it has one

    def start_worker() -> None:
        worker = make_worker.remote(spec, str(Path.cwd()), environment, board)
        waiting[worker.start.remote()] = (worker, None)

    try:
        for _ in range(num_workers):
            start_worker()
        while left or any(unit is not None for _, unit in waiting.values()):
            ready, _ = ray.wait(list(waiting), timeout=SECONDS_BETWEEN_LOOKS)
            show(ray.get(board.take.remote()), progress, advance)
            for reference in ready:
                worker, unit = waiting.pop(reference)
                try:
                    outcome = ray.get(reference)
                except RayTaskError:
                    raise  # a fault in softbench, with the worker's traceback
                except RayError as error:
                    ray.kill(worker)  # a worker that is merely out of reach must not go on beside the next one
                    lost[unit] += 1
                    retry(unit, lost[unit], error, progress)
                    left[:0] = [] if unit is None else [unit]
                    start_worker()
                    continue
                if isinstance(outcome, SoftbenchError):
                    raise outcome
                if unit is not None:
                    yield (unit, *outcome)
                following = next_unit(left, None if unit is None else unit.model)
                if following is None:
                    ray.kill(worker)  # its room may be wanted
                else:
                    left.remove(following)
                    waiting[worker.do.remote(following)] = (worker, following)
        show(ray.get(board.take.remote()), progress, advance)
    finally:
        for worker, _ in waiting.values():
            ray.kill(worker)
        ray.kill(board)


def next_unit(left: Sequence[Unit], model: int | None) -> Unit | None:
    """The first unit of the model that a worker has open, else the first of all."""
    return next((unit for unit in left if unit.model == model), left[0] if left else None)


def retry(unit: Unit | None, times: int, error: Exception, progress: Progress) -> None:
    """Say that a worker was lost, with its unit if it had one. Raises ClusterError where that came too often."""
    what = f"a worker could not start ({first_line(error)})" if unit is None else f"the worker of {unit.name} was lost"
    if times > MAX_RETRIES:
        raise ClusterError(
            f"{what} {times} times; what is done is kept. Is there enough memory (--memory, --eval-batch-size), and "
            "softbench on every machine? Ray's logs say more"
        )
    progress.note(f"{what}; another one takes over ({times} of at most {MAX_RETRIES} retries)")


def show(news: tuple[list[str], list[str]], progress: Progress, advance: Advance) -> None:
    """Put on the display what workers said."""
    notes, latest = news
    for line in notes:
        progress.note(line)
    for line in latest:
        advance(0, line)


class Board:
    """An actor on which workers write what they are at, and from which the driver reads."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._latest: dict[str, str] = {}

    def note(self, line: str) -> None:
        """Keep a line until it is read."""
        self._notes.append(line)

    def show(self, name: str, line: str) -> None:
        """Keep a worker's line until it is read, or there is a newer one of the same worker."""
        self._latest[name] = f"{name} {line}"

    def take(self) -> tuple[list[str], list[str]]:
        """All notes and each worker's latest line since the last call."""
        taken = self._notes, list(self._latest.values())
        self._notes, self._latest = [], {}
        return taken


class BoardProgress:
    """A Progress that writes on a board, once a second at most, under a worker's name: host and process id."""

    def __init__(self, board: Any, name: str) -> None:
        self._board = board
        self._name = name

    @contextmanager
    def track(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Write how far `total` units of work have come, of which `done` were there before."""
        shown = 0.0
        self._board.show.remote(self._name, label)

        def advance(amount: int, detail: str = "") -> None:
            nonlocal done, shown
            done += amount
            if time.perf_counter() - shown >= SECONDS_BETWEEN_LOOKS:
                shown = time.perf_counter()
                self._board.show.remote(self._name, f"{label}: {done}/{total}{detail and ', '}{detail}")

        yield advance

    def note(self, line: str) -> None:
        """Write a line."""
        self._board.note.remote(f"{self._name} {line}")


class Worker:
    """An actor that does units of a spec. It keeps the model that it opened last, and no other.

    A SoftbenchError is returned and not raised: Ray would hand on another kind of error.
    """

    def __init__(self, spec: Spec, folder: str, environment: Mapping[str, str], board: Any) -> None:
        self._spec = spec
        self._folder = folder
        self._environment = environment
        self._progress = BoardProgress(board, f"{socket.gethostname()}:{os.getpid()}")
        self._planned: list[Job] = []
        self._opened: tuple[int, Backend] | None = None

    def start(self) -> SoftbenchError | None:
        """Stand where the driver stands, and make its plan."""
        os.environ.update(self._environment)
        try:
            enter(self._folder)
            if not self._spec.output_path.is_dir():
                raise OutputError(
                    f"{socket.gethostname()} does not see the output folder {str(self._spec.output_path)!r}; "
                    "give one that all machines of the cluster see"
                )
            self._planned = pipeline.plan(self._spec, pipeline.load_tasks(self._spec))
        except SoftbenchError as error:
            return error
        return None

    def do(self, unit: Unit) -> Outcome | SoftbenchError:
        """Run the unit's jobs; what an earlier worker finished of them is read."""
        try:
            backend = self._open(unit.model)
            folder = pipeline.model_folder(self._spec.models[unit.model], self._spec)
            planned = [self._planned[place] for place in unit.jobs]
            jobs = pipeline.run_jobs(planned, backend, self._spec, folder, self._progress)
        except SoftbenchError as error:
            return error
        names = [field.name for field in fields(JobResult) if field.name not in ("task", "data")]
        return backend.engine.info, [{name: getattr(job, name) for name in names} for job in jobs]

    def _open(self, model: int) -> Backend:
        if self._opened is None or self._opened[0] != model:
            self._opened = None  # two models at once may not fit
            self._opened = (model, pipeline.open_model(self._spec.models[model], self._spec, self._progress))
        return self._opened[1]


def enter(folder: str) -> None:
    """Make `folder` the working directory, so that paths of the spec mean what they do for the driver."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise OutputError(
            f"{socket.gethostname()} can't enter {folder!r}, where softbench was started ({error.strerror}); start it "
            "in a folder that all machines of the cluster see"
        ) from error
