"""The rules that every report must keep."""

from __future__ import annotations

import re
from html.parser import HTMLParser


def assert_self_contained(page: str) -> None:
    """Check that the page has no script, loads nothing, closes every tag, and has both themes."""
    assert not re.search(r"https?://|src=|href=|@import|url\(", page)
    assert "<script" not in page
    assert "prefers-color-scheme:dark" in page
    assert 'name="viewport"' in page
    open_tags: list[str] = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balanced().feed(page)
    assert open_tags == []
