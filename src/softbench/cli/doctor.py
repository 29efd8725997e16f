"""`softbench doctor`."""

import typer

from softbench.cli.flags import DataDir
from softbench.cli.terminal import AsJson, open_terminal


def doctor(context: typer.Context, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Look at this machine: versions, devices, data, memory; then check in seconds that models are computed rightly.

    The checks run on the CPU, and on the device that --device auto takes, with a tiny model made on the spot: nothing
    is downloaded. The exit code is 1 where one failed.
    """
    terminal = open_terminal(context, as_json)
    progress = terminal.progress()
    with progress.track("look at the machine", 1) as advance:
        from softbench.doctor import environment
        from softbench.spec import data_dir_of_environment

        found = environment(data_dir or data_dir_of_environment())
        advance(1)
    from softbench.doctor.self_test import CHECKS, self_test
    from softbench.report.doctor import check_line, doctor_dict, environment_tables

    if not as_json:
        terminal.show(environment_tables(found))
    devices = tuple(dict.fromkeys(["cpu", *(device.name for device in found.devices if device.auto)]))
    checks = []
    with progress.track("self-test", len(CHECKS) * len(devices)) as advance:
        for check in self_test(devices):
            checks.append(check)
            advance(1, check.name)
    if as_json:
        terminal.document(doctor_dict(found, checks))
    else:
        for check in checks:
            terminal.table(check_line(check))
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
