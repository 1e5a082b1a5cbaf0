"""Style that a linter does not know: leftovers, and texts that must not stand in any file."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_say_what_they_are_and_hold_no_leftovers(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert not tree.body or ast.get_docstring(tree), "a module says what it is for"
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError", text)


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout: there is nothing to list the files")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_registry_and_no_path_of_a_machine_in_any_file() -> None:
    places = re.compile(
        r"--(?:extra-)?index-url|--find-links|files\.pythonhosted|file:///|/home/\w+|/root/|/opt/pypi"
    )
    found = []
    for path in _tracked():
        if path.suffix in (".gz", ".png") or path == Path(__file__) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if places.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found


def test_the_locks_hold_exact_versions_and_nothing_else() -> None:
    for lock in (ROOT / "locks").glob("*.txt"):
        for line in lock.read_text().splitlines():
            assert re.fullmatch(r"[a-z0-9.-]+==[\w.+!]+(?: ; .+)?", line), line


def test_the_version_is_the_same_everywhere() -> None:
    import tomllib

    import gossamer

    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        == gossamer.__version__
    )
