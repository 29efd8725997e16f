"""What `softbench doctor` prints: the machine in tables, then a line for each check."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from softbench.doctor import Check, Device, Environment
from softbench.doctor.environment import OPTIONAL
from softbench.report.grid import facts

GIB = 1 << 30


def environment_tables(found: Environment) -> list[Table]:
    """Packages, devices, and where benchmarks and models lie."""
    return [
        facts("versions", [("python", found.python), ("system", found.system), *_versions(found)]),
        facts("devices", [(device.name, _device(device, found)) for device in found.devices]),
        facts(
            "data and models",
            [
                ("benchmarks", _benchmarks(found)),
                ("cache", f"{found.cache}, {_gib(found.cache_free)} free on its disk"),
                ("hub", f"{'offline (HF_HUB_OFFLINE)' if found.hub_offline else 'asked'}; cache {found.hub_cache}"),
                ("memory", f"{_gib(found.memory)}, {_gib(found.free_memory)} free"),
            ],
        ),
    ]


def check_line(check: Check) -> Table:
    """`ok batch invariance (cpu): ...`, or what failed."""
    word = Text("ok    ", style="green") if check.ok else Text("failed", style="bold red")
    return facts("", [(word, f"{check.name} ({check.device}): {check.detail}")])


def doctor_dict(found: Environment, checks: Sequence[Check]) -> dict[str, Any]:
    """All of it for machines; bytes, seconds, and null for what is absent or unknown."""
    return {**asdict(found), "checks": [asdict(check) for check in checks], "ok": all(check.ok for check in checks)}


def _versions(found: Environment) -> list[tuple[str, str]]:
    there = [(name, version or "absent") for name, version in found.versions.items()]
    optional = [
        (name, version or f"absent: pip install 'softbench[{OPTIONAL[name]}]'")
        for name, version in found.optional.items()
    ]
    return there + optional


def _device(device: Device, found: Environment) -> str:
    parts = [device.description]
    if device.name == "cpu":
        parts.append(f"{found.cores} cores, threads: {found.threads} (OMP_NUM_THREADS)")
    parts.append(f"{_gib(device.memory)}, {_gib(device.free)} free")
    parts.append(f"computes in {' and '.join(device.native_dtypes)}; --dtype auto takes {device.auto_dtype}")
    if device.auto:
        parts.append("--device auto takes this one")
    return "; ".join(parts)


def _benchmarks(found: Environment) -> str:
    if found.data_dir is None:
        return "from the hub; a local folder is named by --data-dir or SOFTBENCH_DATA"
    there = [name for name, is_there in found.benchmarks.items() if is_there]
    absent = [name for name, is_there in found.benchmarks.items() if not is_there]
    listed = f"{found.data_dir}: {len(there)} of {len(found.benchmarks)} there: {', '.join(there) or 'none'}"
    return f"{listed}; not there: {', '.join(absent)}" if absent else listed


def _gib(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount / GIB:.1f} GiB"
