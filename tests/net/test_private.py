"""No other user of the machine reads or changes a node's files, whatever the umask is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer
from gossamer.net import admin, private
from gossamer.net.disk import DataDirectoryError
from gossamer.net.errors import NodeError
from gossamer.net.service import DRAINED, serve
from keynet import Fabric
from livenet import GENEVA, WEATHER, go, until

NOBODY = 65_534


@contextlib.contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(base: Path) -> dict[int, set[int]]:
    """The modes of the folders and of the files below."""
    found: dict[int, set[int]] = {stat.S_IFDIR: set(), stat.S_IFREG: set()}
    base = base.resolve()
    for path in (base, *base.rglob("*")):
        found[stat.S_IFMT(path.lstat().st_mode)].add(mode(path))
    return found


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a path look as if another user owned it."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)


# The rule by itself.


@pytest.mark.parametrize("bits", [0, 0o022, 0o077])
def test_a_folder_is_made_with_all_above_it_for_its_owner_only(tmp_path: Path, bits: int) -> None:
    with umask(bits):
        made = private.folder(tmp_path / "a" / "b" / "c", parents=True)
    assert modes(tmp_path / "a")[stat.S_IFDIR] == {0o700}
    assert private.folder(made) == made


@pytest.mark.parametrize("wide", [0o755, 0o770, 0o777, 0o701])
def test_a_folder_of_ours_is_tightened_and_the_log_says_so(
    tmp_path: Path, wide: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    path.chmod(wide)
    with caplog.at_level(logging.WARNING, "gossamer"):
        private.folder(path)
    assert mode(path) == 0o700
    assert "was open to others" in caplog.text


def test_a_folder_that_was_made_for_others_too_is_not_closed_to_them(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(private.NotPrivateError, match=r"choose a folder inside it, or chmod 700"):
        private.folder(shared)
    shared.chmod(0o755)
    (shared / "letters").touch()
    with pytest.raises(private.NotPrivateError, match=r"not this program's own"):
        private.folder(shared, holds=("gossamer.sqlite",))
    assert mode(shared) == 0o755
    (shared / "gossamer.sqlite").touch()
    private.folder(shared, holds=("gossamer.sqlite",))
    assert mode(shared) == 0o700


def test_a_link_a_file_and_a_folder_of_another_user_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(private.NotPrivateError, match="symbolic link"):
            private.folder(tmp_path / name)
    (tmp_path / "file").touch()
    with pytest.raises(private.NotPrivateError, match="not a folder"):
        private.folder(tmp_path / "file")
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    give_away(theirs, monkeypatch)
    with pytest.raises(private.NotPrivateError, match=r"belongs to another user.*choose a folder"):
        private.folder(theirs)


def test_a_file_of_another_user_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted, target = tmp_path / "planted", tmp_path / "target"
    planted.touch()
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        private.create(tmp_path / "link")
    assert target.read_text() == "before"
    give_away(planted, monkeypatch)
    for call in (private.create, private.file, private.tighten):
        with pytest.raises(private.NotPrivateError, match="belongs to another user"):
            call(planted)


# A node.


async def work(
    data_dir: Path | None, trace_dir: Path | None = None, keys: Path | None = None
) -> None:
    async with gossamer.Node(data_dir=data_dir, trace_dir=trace_dir, keys=keys) as node:
        await node.advertise("weather", WEATHER)
        async with node.subscribe("weather") as events:
            await node.publish("weather", GENEVA)
            await anext(events)
        for folder in filter(None, (data_dir, trace_dir)):
            # It holds while the node runs, too: there are the WAL and the journal.
            assert {0o600} == modes(folder)[stat.S_IFREG]


@pytest.mark.live
@pytest.mark.parametrize("bits", [0, 0o022, 0o077])
def test_a_nodes_files_are_for_its_owner_only_whatever_the_umask(tmp_path: Path, bits: int) -> None:
    with umask(bits):
        keys = Fabric(tmp_path).issue("a")
        go(work(tmp_path / "new" / "data", tmp_path / "new" / "traces", keys))
    assert modes(tmp_path / "new") == {stat.S_IFDIR: {0o700}, stat.S_IFREG: {0o600}}
    assert modes(tmp_path / "test") == {stat.S_IFDIR: {0o700}, stat.S_IFREG: {0o600}}


@pytest.mark.live
def test_a_data_directory_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    go(work(data))
    for path in (data, *data.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    # A crash may leave them.
    for name in ("gossamer.sqlite-wal", "gossamer.sqlite-journal"):
        (data / name).touch(mode=0o666)
    go(work(data))
    assert modes(data) == {stat.S_IFDIR: {0o700}, stat.S_IFREG: {0o600}}


@pytest.mark.live
def test_a_data_directory_behind_a_link_is_used(tmp_path: Path) -> None:
    """An operator may put a link there, and systemd does so for dynamic users."""
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    go(work(tmp_path / "data"))
    assert modes(tmp_path / "disk") == {stat.S_IFDIR: {0o700}, stat.S_IFREG: {0o600}}


@pytest.mark.live
def test_nothing_is_written_to_a_data_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    give_away(data, monkeypatch)
    with pytest.raises(
        DataDirectoryError, match=r"belongs to another user.*or one inside this one that does not"
    ):
        go(work(data))
    assert list(data.iterdir()) == []
    # The error suggests this.
    if os.geteuid() == 0:
        go(work(data / "mine"))
        assert mode(data / "mine") == 0o700


@pytest.mark.live
def test_two_nodes_of_one_process_are_still_kept_from_one_data_directory(tmp_path: Path) -> None:
    """Opening and closing a file of SQLite's beside it would drop the locks that it has."""

    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path / "data"):
            for _ in range(2):
                with pytest.raises(DataDirectoryError, match="is another node using it"):
                    await gossamer.Node(data_dir=tmp_path / "data").start()

    go(main())


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing_of_an_outbox_and_of_traces() -> None:
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        (base / "open").write_text("anybody")
        (base / "open").chmod(0o644)
        with umask(0o022):
            go(work(base / "data", base / "traces"))
        files = [path for path in base.rglob("*") if path.is_file()]
        assert len(files) == 3
        for one in files:
            read = subprocess.run(
                ["cat", str(one)],
                user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False,
            )  # fmt: skip
            assert (read.returncode == 0) == (one.name == "open")
            assert read.stdout == (b"anybody" if one.name == "open" else b"")


# Traces.


@pytest.mark.live
@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o600), (0o2750, 0o640), (0o2700, 0o600)])
def test_traces_are_shared_with_a_group_on_purpose_only(
    tmp_path: Path, folder: int, file: int
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    traces.chmod(folder)

    async def main() -> None:
        async with gossamer.Node(trace_dir=traces):
            pass

    with umask(0o077):
        go(main())
    assert modes(traces) == {stat.S_IFDIR: {folder}, stat.S_IFREG: {file}}


@pytest.mark.live
def test_a_trace_file_that_another_user_has_put_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Fabric(tmp_path).issue("a")
    traces = tmp_path / "traces"
    traces.mkdir()
    go(work(None, traces, keys))
    [planted] = traces.iterdir()
    give_away(planted, monkeypatch)
    with pytest.raises((NodeError, OSError), match="belongs to another user"):
        go(work(None, traces, keys))


# The admin socket.


@pytest.mark.live
@pytest.mark.parametrize("planted", ["a folder of another user", "a link", "a file"])
def test_a_planted_folder_for_admin_sockets_stops_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, planted: str
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / f"gossamer-{os.getuid()}"
    if planted == "a file":
        path.touch()
    elif planted == "a link":
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
        give_away(path, monkeypatch)

    async def main() -> None:
        stop, started = asyncio.Event(), asyncio.Event()
        node = gossamer.Node()
        task = asyncio.create_task(
            serve(node, stop, topics={}, drain=1.0, started=lambda metrics: started.set())
        )
        await until(lambda: started.is_set() or task.done())
        async with gossamer.Node(join=[node.address]) as other:
            await other.advertise("weather", WEATHER)
            async with node.subscribe("weather") as events:
                await other.publish("weather", GENEVA)
                await anext(events)
        stop.set()
        assert await task == DRAINED

    with caplog.at_level(logging.WARNING, "gossamer"):
        go(main())
    assert "no admin socket" in caplog.text
    if path.is_dir():
        assert list(path.iterdir()) == []
    with pytest.raises(admin.AdminError, match="no folder for admin sockets"):
        admin.directory()


@pytest.mark.live
def test_an_admin_socket_is_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        async with gossamer.Node() as node, admin.offered(node.address, node.answer):
            [found] = admin.directory().iterdir()
            assert (mode(found), mode(found.parent)) == (0o600, 0o700)
        assert list(admin.directory().iterdir()) == []

    with umask(0):
        go(main())
