"""Folders and files that only the owner of a node can open.

A node writes events, receipts and its identity. Their readers are not left to the umask: a folder
is made with mode 0700 and a file with mode 0600. A folder of ours that others can enter is
tightened before anything is written there. A folder or file of another user is refused, and so is a
symbolic link, because the user who put it there could read or choose the files of this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

FOLDER, FILE = 0o700, 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class NotPrivateError(OSError):
    """A folder or a file that others could read or change. The message says what to do."""


def folder(path: Path, *, parents: bool = False, holds: Collection[str] | None = None) -> Path:
    """Makes a folder of mode 0700, or takes our folder that is there and tightens it.

    With ``parents`` it makes missing folders above it too. With ``holds``, a folder that others can
    enter is tightened only if it is empty or has one of these names in it. Any other folder may
    have been meant for more than one user.
    """
    if parents and not path.parent.exists():
        folder(path.parent, parents=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER)
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        raise NotPrivateError(f"{path} is a symbolic link; remove it, or choose another folder")
    if not stat.S_ISDIR(info.st_mode):
        raise NotPrivateError(f"{path} is not a folder; remove it, or choose another one")
    _check_owner(path, info)
    if info.st_mode & OTHERS:
        _check_purpose(path, info, holds)
        _tighten(path, info)
    return path


def _check_owner(path: Path, info: os.stat_result) -> None:
    if info.st_uid != os.geteuid():
        raise NotPrivateError(
            f"{path} belongs to another user (uid {info.st_uid}, and this process has uid "
            f"{os.geteuid()}), and that user could read the files there; "
            "choose a folder that is yours, "
            "or one inside this one that does not exist yet"
        )


def _check_purpose(path: Path, info: os.stat_result, holds: Collection[str] | None) -> None:
    """Refuses a folder that was made for others too, so that it is not closed to them."""
    names = [one.name for one in path.iterdir()] if holds is not None else []
    is_other = holds is not None and names and not any(name in names for name in holds)
    if info.st_mode & stat.S_ISVTX or is_other:
        raise NotPrivateError(
            f"others can enter {path} (mode {stat.S_IMODE(info.st_mode):04o}), and it is not this "
            f"program's own; choose a folder inside it, or chmod 700 {path}"
        )


def _tighten(path: Path, info: os.stat_result) -> None:
    """Closes a folder of ours to others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_owner(path, os.fstat(descriptor))
        os.fchmod(descriptor, FOLDER)
        is_open = os.fstat(descriptor).st_mode & OTHERS
    finally:
        os.close(descriptor)
    if is_open:
        raise NotPrivateError(
            f"others can enter {path}, and its file system keeps no modes; "
            "choose a folder elsewhere"
        )
    from gossamer.net.journal import say

    say(
        logging.WARNING,
        "a folder was open to others and is closed to them now",
        path=str(path),
        mode=f"{stat.S_IMODE(info.st_mode):04o}",
    )


def file(path: Path) -> None:
    """Makes sure that this file is there and that nobody else can open it.

    A file that is there is not opened: SQLite would lose the locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))
    except FileExistsError:
        tighten(path)


def tighten(path: Path) -> None:
    """Closes a file of ours to others, if it is there."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(info.st_mode):
        raise NotPrivateError(f"{path} is not a file; remove it, or choose another folder")
    _check_owner(path, info)
    if info.st_mode & OTHERS:
        path.chmod(FILE)


def create(path: Path, *, mode: int = FILE, buffering: int = -1) -> IO[bytes]:
    """A file to write, empty at first, with this mode whatever the umask is."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            _check_owner(path, os.fstat(descriptor))
            os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    return open(path, "wb", buffering=buffering, opener=opener)


def write(path: Path, data: bytes, *, mode: int = FILE) -> None:
    """Writes a file whole or not at all. A reader sees the old contents or the new."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as fresh:
            os.fchmod(descriptor, mode)
            fresh.write(data)
            fresh.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
