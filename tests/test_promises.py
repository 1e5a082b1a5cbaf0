"""The page "What Gossamer promises" (docs/delivery.md) names a test for each sentence, and these
tests exist.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = "## What Gossamer promises"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def promises() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each numbered sentence, with the tests that hold it."""
    text = (ROOT / "docs" / "delivery.md").read_text("utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    items = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    return [(item, NAMED.findall(item)) for item in items]


def test_there_are_ten_sentences_and_each_names_the_tests_that_hold_it() -> None:
    found = promises()
    assert len(found) == 10
    for sentence, tests in found:
        assert tests, sentence


def test_the_tests_that_are_named_exist() -> None:
    for _, tests in promises():
        for path, name in tests:
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            defined = {
                node.name
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name in defined, f"{path} has no {name}"
