"""Lines as they come, wherever the input is cut."""

from __future__ import annotations

import asyncio
import io
import os
from random import Random

import pytest

from gossamer.cli import lines
from gossamer.cli.lines import LineError, Numbered, lines_of, numbered
from gossamer.cli.publish import Sent

TEXT = b'{"n": 1}\n\n  \n{"n": 2}\r\nx\n\n{"n": 3}'
FOUND = [(1, b'{"n": 1}'), (4, b'{"n": 2}\r'), (5, b"x"), (7, b'{"n": 3}')]


@pytest.mark.parametrize("seed", range(20))
def test_the_lines_and_their_numbers_do_not_depend_on_how_the_input_is_cut(seed: int) -> None:
    rng, left = Random(seed), TEXT

    def read() -> bytes:
        nonlocal left
        count = rng.choice((1, 2, 5, 100))
        chunk, left = left[:count], left[count:]
        return chunk

    assert [one for some in numbered(read) for one in some] == FOUND


def test_a_line_without_end_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 10)
    found: list[Numbered] = []
    chunks = iter((b"{}\n{}\n12345", b"6789", b"0x", b"\n"))
    with pytest.raises(LineError, match="line 3: it has more than 10 bytes"):
        found.extend(numbered(lambda: next(chunks)))
    assert found == [[(1, b"{}"), (2, b"{}")]]


def test_a_pipe_is_read_while_the_event_loop_goes_on() -> None:
    async def main() -> None:
        ours, theirs = os.pipe()
        with os.fdopen(ours, "rb") as source:
            some = lines_of(source)
            for number in range(1, 6):
                following = asyncio.ensure_future(anext(some))
                # The loop has its turn, although nothing was written.
                await asyncio.sleep(0)
                assert not following.done()
                os.write(theirs, b"{}\n")
                assert await asyncio.wait_for(following, 30) == [(number, b"{}")]
            os.close(theirs)
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(some), 30)

    asyncio.run(main())


def test_a_file_in_memory_and_more_than_is_read_ahead() -> None:
    text = b"".join(b'{"n": %d}\n' % n for n in range(100_000))

    async def main() -> None:
        found = [line async for some in lines_of(io.BytesIO(text)) for _, line in some]
        assert found == text.splitlines()

    asyncio.run(main())


def test_the_summary_says_what_was_dropped_if_anything_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = Sent(as_json=False)
    sent.count({"matched": 2, "dropped": 0})
    sent.summary()
    assert capsys.readouterr().out == (
        "1 event published; taken by 2 subscriptions in all, 0 by none\n"
    )
    sent.count({"matched": 0, "dropped": 3})
    sent.summary()
    assert capsys.readouterr().out == (
        "2 events published; taken by 2 subscriptions in all, 1 by none; "
        "3 times a subscription had dropped one before it was taken\n"
    )
    told = Sent(as_json=True)
    told.count({"sequence": 1, "matched": 1, "dropped": 0, "publisher": "7"})
    assert '"dropped":0' in capsys.readouterr().out
