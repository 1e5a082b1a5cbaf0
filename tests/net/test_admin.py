"""Finding the node that a command is about."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.net.admin import AdminError, directory, find


def test_of_several_nodes_the_usual_one_is_found_and_else_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ExitStack() as open_sockets:

        def listen(port: int) -> Path:
            path = directory() / f"127.0.0.1_{port}.sock"
            one = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(str(path))
            one.listen()
            return path

        with pytest.raises(AdminError, match="start one with: gossamer node"):
            find(None, "127.0.0.1:2")
        first = listen(1)
        # It is the only node, whether it is the usual one or not.
        assert find(None, "127.0.0.1:2") == first
        second = listen(2)
        assert find(None, "127.0.0.1:2") == second
        assert find("127.0.0.1:1", "127.0.0.1:2") == first
        with pytest.raises(
            AdminError,
            match=r"2 nodes are running here \(127.0.0.1:1, 127.0.0.1:2\); say which one: --node",
        ):
            find(None, "127.0.0.1:9")
        for port in range(3, 7):
            listen(port)
        with pytest.raises(
            AdminError, match=r"6 nodes are running here \(127.0.0.1:1, .*127.0.0.1:5, \.\.\.\)"
        ):
            find(None)
