"""The README's worked example runs as it is printed, and the pages name commands and files that
exist.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def run(number: int) -> list[str]:
    code = re.findall(r"```python\n(.*?)```", README, re.S)[number]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.live
def test_the_worked_example() -> None:
    first, second = run(0)
    assert first == "1 subscription took it"
    assert re.fullmatch(r"Geneva \(\d+, 1, 1\)", second)


@pytest.mark.live
def test_the_example_of_the_view() -> None:
    assert run(1) == ["1 node wants weather", "joined left"]


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist_and_have_the_options_that_it_gives_them(page: Path) -> None:
    from gossamer.cli.app import app

    for line in re.findall(r"^ *(?:\$ )?gossamer ([a-z].*)", page.read_text(), re.M):
        words = shlex.split(line.rstrip("\\"), comments=True)
        # Options behind a pipe belong to other programs.
        words = words[: words.index("|")] if "|" in words else words
        command: click.Command = app
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        known = {"--help"} | {
            name for option in command.params for name in (*option.opts, *option.secondary_opts)
        }
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_filter_error_is_what_the_filters_say() -> None:
    from gossamer.filters import Filter, FilterError, Schema

    [shown] = re.findall(r"```\n(unknown attribute.*?)\n```", README, re.S)
    with pytest.raises(FilterError) as caught:
        Filter.parse(
            shown.splitlines()[1].strip(), Schema.parse("country STRING, city STRING, temp INT")
        )
    assert str(caught.value) == shown
