"""Progress bars for commands that take longer than two seconds."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

PATIENCE_S = 2.0


class Stages(Progress):
    """Bars on standard error, or a line for each stage where standard error is not a terminal.

    The lines show in a log how far the command is.
    """

    def update(self, task_id: TaskID, *, description: str | None = None, **fields: Any) -> None:
        if description is not None and not self.console.is_terminal:
            self.console.print(
                f"{time.strftime('%H:%M:%S')} {description}", markup=False, highlight=False
            )
        super().update(task_id, description=description, **fields)


class Bar:
    """A progress bar on standard error, shown on a terminal when something takes longer than two
    seconds.
    """

    def __init__(self, what: str) -> None:
        self._what, self._began = what, time.monotonic()
        self._progress: Progress | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __enter__(self) -> Bar:
        return self

    def update(self, fraction: float) -> None:
        if self._progress is None:
            if self.seconds < PATIENCE_S or not sys.stderr.isatty():
                return
            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(self._what, total=1.0)
            self._progress.start()
        self._progress.update(self._task, completed=fraction)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
