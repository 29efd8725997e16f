"""Asks pip-audit whether any version in requirements.lock has a known vulnerability: `make audit`.

Exit code 1 where one has. Where the service that knows can't be reached, that is said, and nothing is claimed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> None:
    """Print what was found."""
    asked = ["--requirement", str(LOCK), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *asked], capture_output=True, text=True, check=False)
    try:
        lines, vulnerable = summary(json.loads(done.stdout)["dependencies"])
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        lines, vulnerable = [f"not audited: pip-audit could not ask ({reason})"], False
    print("\n".join(lines))
    sys.exit(int(vulnerable))


def summary(found: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """What to print of pip-audit's findings, one dictionary a package, and whether any is vulnerable."""
    audited = [one for one in found if "vulns" in one]
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in audited
        for flaw in one["vulns"]
    ]
    if not audited:
        return [f"not audited: pip-audit could ask about none of {len(found)} packages from here"], False
    vulnerable = sum(bool(one["vulns"]) for one in audited)
    lines.append(f"{len(audited)} of {len(found)} packages audited, {vulnerable} with known vulnerabilities")
    return lines, bool(vulnerable)


if __name__ == "__main__":
    main()
