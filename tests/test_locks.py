"""The locks name each version and its hashes, and no place that the packages come from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = re.compile(r"[a-z0-9-]+==[^ ;]+( ; [^\\/]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_has_an_exact_version_and_hashes(lock: Path) -> None:
    packages = lock.read_text().replace(" \\\n", "\n").split("\n")
    hashes = 0
    for line in filter(None, reversed(packages)):
        if line.startswith(" "):
            assert HASH.fullmatch(line.strip()), line
            hashes += 1
        else:
            assert PACKAGE.fullmatch(line), line
            assert hashes, f"{line} has no hash"
            hashes = 0
    assert not hashes


def test_the_build_uses_the_locked_versions() -> None:
    group = PROJECT["dependency-groups"]["build"]
    requires = PROJECT["build-system"]["requires"]
    assert all("==" in one for one in group)
    assert set(requires) <= set(group)
    lock = (ROOT / "locks" / "build.txt").read_text()
    assert set(group) <= {line.split(" ")[0] for line in lock.splitlines()}


def test_the_locks_agree() -> None:
    """A package is tested in the version in which it is built with and runs."""

    def versions(name: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for package, version in re.findall(
            r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "locks" / name).read_text(), re.M
        ):
            found.setdefault(package, set()).add(version)
        return found

    tested = versions("dev.txt")
    for name in ("build.txt", "run.txt"):
        for package, those in versions(name).items():
            assert tested.get(package) == those, f"{package} in {name}"


def test_make_installs_nothing_without_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    lines = [line for line in makefile.splitlines() if " -r locks/" in line]
    assert lines
    assert all("--require-hashes" in line for line in lines)
