"""What `make audit` says of pip-audit's findings."""

from scripts.audit import summary

SOUND = {"name": "numpy", "version": "2.0", "vulns": []}
FLAWED = {"name": "jinja2", "version": "3.0", "vulns": [{"id": "CVE-1", "fix_versions": ["3.1.6"]}]}
UNKNOWN = {"name": "torch", "skip_reason": "not found"}


def test_a_known_vulnerability_is_named_with_what_mends_it() -> None:
    lines, vulnerable = summary([SOUND, FLAWED, UNKNOWN])
    assert vulnerable
    assert lines == [
        "jinja2 3.0: CVE-1, mended in 3.1.6",
        "2 of 3 packages audited, 1 with known vulnerabilities",
    ]


def test_packages_without_any_are_counted() -> None:
    assert summary([SOUND, UNKNOWN]) == (["1 of 2 packages audited, 0 with known vulnerabilities"], False)


def test_where_nothing_could_be_asked_nothing_is_claimed() -> None:
    [line], vulnerable = summary([UNKNOWN])
    assert line.startswith("not audited")
    assert not vulnerable
