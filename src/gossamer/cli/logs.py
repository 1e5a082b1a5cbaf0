"""Log lines on standard error as text or JSON, with the fields that net/journal.py gives them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from gossamer.cli.plain import plain, plain_lines


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        fields: dict[str, Any] = getattr(record, "fields", {})
        return self.line(
            at, record.levelname.lower(), record.getMessage(), fields, self._trouble(record)
        )

    def line(self, at: str, level: str, text: str, fields: dict[str, Any], trouble: str) -> str:
        words = [f"{name}={_word(value)}" for name, value in fields.items()]
        line = " ".join([f"{at} {level:<7} {plain(text)}", *words])
        return line + (f"\n{plain_lines(trouble)}" if trouble else "")

    def _trouble(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonLines(Lines):
    def line(self, at: str, level: str, text: str, fields: dict[str, Any], trouble: str) -> str:
        about = {
            "at": at,
            "level": level,
            "message": text,
            **fields,
            **({"traceback": trouble} if trouble else {}),
        }
        return json.dumps(about, default=str)


def _word(value: Any) -> str:
    text = str(value)
    return (
        json.dumps(text)
        if not text or any(c in text for c in ' "=\n') or not text.isprintable()
        else text
    )


def set_up(format: str, level: str) -> None:
    """Write the logs of all Python modules, asyncio included, to standard error in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        logging.getLogger("asyncio").setLevel(logging.WARNING)
