"""Readable transcripts of what nodes say to each other; see player.py for the language."""

from __future__ import annotations

from pathlib import Path

import pytest

from transcripts.player import played

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def test_there_are_transcripts_of_joining_each_route_and_a_crash() -> None:
    assert set(NAMES) >= {"joining", "direct", "flood", "tree", "skiplist", "crash"}


@pytest.mark.parametrize("name", NAMES)
def test_nodes_say_what_the_transcript_says(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.txt"
    text = path.read_text("utf-8")
    now = played(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now, "utf-8")
        return
    assert now == text, "run pytest tests/transcripts --rewrite, and review the difference"
