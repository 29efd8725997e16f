"""How fast a form is learned: scores along tuning, and the step at which they have become what they end as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softbench.types import Estimate


@dataclass(frozen=True, slots=True)
class Curve:
    """Metrics of one prompt along its tuning.

    `steps` rise, `samples` are how many had been seen by then; `metrics` hold an Estimate a step. `saturation` is each
    metric's, None where it is unknown at the end.
    """

    steps: tuple[int, ...]
    samples: tuple[int, ...]
    metrics: Mapping[str, tuple[Estimate, ...]]
    saturation: Mapping[str, int | None]


def curve(points: Sequence[tuple[int, int, Mapping[str, Estimate]]], names: Sequence[str]) -> Curve:
    """The curve of the metrics `names` through points (step, samples, metrics). Raises ValueError at equal steps."""
    ordered = sorted(points, key=lambda point: point[0])
    steps = tuple(step for step, _, _ in ordered)
    if len(set(steps)) < len(steps):
        raise ValueError(f"steps must differ, and came as {list(steps)}")
    metrics = {name: tuple(of_step[name] for _, _, of_step in ordered) for name in names}
    return Curve(
        steps=steps,
        samples=tuple(samples for _, samples, _ in ordered),
        metrics=metrics,
        saturation={name: saturation(steps, estimates) for name, estimates in metrics.items()},
    )


def saturation(steps: Sequence[int], estimates: Sequence[Estimate]) -> int | None:
    """The first step whose interval contains the plateau's value, the last step's; None where that is unknown."""
    plateau = estimates[-1].value if estimates else None
    if plateau is None:
        return None
    return next(
        step
        for step, one in zip(steps, estimates, strict=True)
        if one.low is not None and one.high is not None and one.low <= plateau <= one.high
    )
