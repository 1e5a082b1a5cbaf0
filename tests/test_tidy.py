"""Style that a linter does not know: leftovers, plain language, and texts that must not stand in
any file.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "examples", "benchmarks", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)
COMPILED = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.p[yx][xi]"))
# This file names the words that it looks for.
WORDS = "tests/test_tidy.py"
WIDTH = 100
# These words have no named subject. A stranger does not know whom or what they mean.
HEADLESS = re.compile(
    r"\b(?:[Ww]hat (?:is|was|has|they|it|comes|goes)"
    r"|[Ww]ho (?:is|has|comes|leaves|does|tells|asks)"
    r"|so (?:many|much|long) )"
)
# Tools read these comments, and tests/typed reads the last one. They must stand behind the code.
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|pragma|refused:)")
TEXTS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_say_what_they_are_and_hold_no_leftovers(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert not tree.body or ast.get_docstring(tree), "a module says what it is for"
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError", text)


def _faults(name: str) -> Iterator[str]:
    """The places of a file that break a rule of plain language that a machine can check."""
    text = (ROOT / name).read_text()
    for number, line in enumerate(text.split("\n"), 1):
        # As for ruff, a line without a space cannot be broken, and directives do not count.
        code = DIRECTIVE.split(line)[0].rstrip()
        if len(code) > WIDTH and " " in code.strip():
            yield f"{name}:{number}: the line has more than {WIDTH} columns"
        if name.startswith("src/") and "DESIGN.md" in line:
            yield f"{name}:{number}: DESIGN.md is no part of the project"
    if not name.endswith(".py"):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number = token.start[0]
        if token.type == tokenize.COMMENT:
            before = token.line[: token.start[1]].strip()
            if before and not DIRECTIVE.match(token.string):
                yield f"{name}:{number}: the comment stands behind the code, and not above it"
        # In tests a string is data, unless it is a docstring.
        is_data = name.startswith("tests/") and not token.string.startswith('"""')
        if token.type == tokenize.COMMENT or (token.type in TEXTS and not is_data):
            for found in HEADLESS.finditer(token.string):
                yield f"{name}:{number}: name the subject in place of {found[0].strip()!r}"


def test_the_words_are_plain() -> None:
    names = [name for name in [*PYTHON, *COMPILED] if name != WORDS]
    found = [fault for name in names for fault in _faults(name)]
    assert not found, "\n".join(["the rules are in CONTRIBUTING.md", *found])


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout: there is nothing to list the files")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_registry_and_no_path_of_a_machine_in_any_file() -> None:
    places = re.compile(
        r"--(?:extra-)?index-url|--find-links|files\.pythonhosted"
        r"|file:///|/home/\w+|/root/|/opt/pypi"
    )
    found = []
    for path in _tracked():
        if path.suffix in (".gz", ".png") or path == Path(__file__) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if places.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found


def test_the_version_is_the_same_everywhere() -> None:
    import gossamer

    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        == gossamer.__version__
    )
