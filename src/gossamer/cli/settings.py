"""The effective options of a node, from flags, environment, file and defaults, each with its
source.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gossamer.cli.options import BY_NAME, OPTIONS, PREFIX, Option
from gossamer.net.limits import PeerLimits
from gossamer.node import NodeConfig

_NOT_OPTIONS = {"GOSSAMER_CONFIG"}
FILE_BYTES_MAX = 1 << 20


class ConfigError(ValueError):
    """Options that cannot be used, with one line for each problem: its place and the remedy."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Setting(Struct, frozen=True):
    """An effective value."""

    option: Option
    value: Any
    # For example "flag --k", "environment GOSSAMER_K", "gossamer.toml line 3" or "default".
    source: str


class Settings(Struct, frozen=True):
    by_name: dict[str, Setting]
    # Harmless oddities: variables that look like options and are not.
    warnings: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name].value

    def node_arguments(self) -> dict[str, Any]:
        """The arguments for ``gossamer.Node``."""
        return {
            **self._of("node"),
            "limits": PeerLimits(**self._of("peers")),
            "config": NodeConfig(**self._of("limits")),
        }

    def _of(self, where: str) -> dict[str, Any]:
        """The values that go to one place, by their names there."""
        places = ((setting.option.to.split("."), setting) for setting in self.by_name.values())
        return {place[1]: setting.value for place, setting in places if place[0] == where}

    def check(self) -> list[str]:
        """The problems that no single option shows."""
        problems = []
        try:
            config: NodeConfig | None = NodeConfig(**self._of("limits"))
        except ValueError as error:
            config = None
            problems.append(f"{error}{self._places(str(error))}")
        try:
            import gossamer
            from gossamer.net.errors import KeysError

            limits = PeerLimits(**self._of("peers"))
            gossamer.Node(**self._of("node"), limits=limits, config=config)
        except (ValueError, RuntimeError) as error:
            about = "keys" if isinstance(error, KeysError) else "listen"
            if str(error).startswith("revocations_max_age"):
                about = "revocations_max_age"
            problems.append(f"{error} ({self.by_name[about].source})")
        return problems

    def _places(self, problem: str) -> str:
        """The sources of the options that a problem names."""
        named = [
            self.by_name[word]
            for word in dict.fromkeys(re.findall(r"[a-z_]+", problem))
            if word in self.by_name
        ]
        places = [setting.source for setting in named if setting.source != "default"]
        return f" ({', '.join(places)})" if places else ""


def resolve(flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None) -> Settings:
    """The effective options. Raises ConfigError with every problem, and not only the first."""
    problems: list[str] = []
    from_file = _read(Path(file), problems) if file else {}
    found: dict[str, Setting] = {}
    for option in OPTIONS:
        flag = flags.get(option.name)
        if flag is not None and flag != ():
            found[option.name] = Setting(option, _merged(option, flag), f"flag {option.flag}")
        elif option.variable in environ:
            value = _try(option.kind.text, environ[option.variable], option.variable, problems)
            found[option.name] = Setting(option, value, f"environment {option.variable}")
        elif option.name in from_file:
            value, place = from_file[option.name]
            found[option.name] = Setting(
                option, _try(option.kind.value, value, f"{place}: {option.name}", problems), place
            )
        else:
            found[option.name] = Setting(option, option.default, "default")
    settings = Settings(found, _strange_variables(environ))
    problems += settings.check() if not problems else []
    if problems:
        raise ConfigError(problems)
    return settings


def _merged(option: Option, flag: Any) -> Any:
    """The values of a flag that was given several times, as one value."""
    if not option.kind.many:
        return flag
    if isinstance(option.default, dict):
        return {name: value for one in flag for name, value in one.items()}
    return tuple(value for one in flag for value in one)


def _try(read: Any, given: Any, place: str, problems: list[str]) -> Any:
    try:
        return read(given)
    except* ValueError as errors:
        problems += [f"{place}: {error}" for error in errors.exceptions]
    return None


def _read(path: Path, problems: list[str]) -> dict[str, tuple[Any, str]]:
    """A file's values with their places."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError([f"cannot read {path}: {error.strerror or error}"]) from None
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError([f"{path} has more than {FILE_BYTES_MAX} bytes: is it a configuration?"])
    try:
        text = raw.decode()
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from None
    found = {}
    for key, value in data.items():
        place = f"{path} line {_line(text, key)}"
        if key in BY_NAME:
            found[key] = (value, place)
        else:
            problems.append(f"{place}: unknown option {key!r}{_near(key, list(BY_NAME))}")
    return found


def _line(text: str, key: str) -> int:
    """The line of a key, or of its table."""
    name = re.escape(key)
    pattern = re.compile(rf"""^\s*(?:\[\[?\s*)?["']?{name}["']?\s*(?:[.=\]])""")
    return next(
        (number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1
    )


def _near(word: str, known: list[str]) -> str:
    if word in ("schema", "retention"):
        return "; it belongs to a topic: write it below [topics.NAME]"
    near = difflib.get_close_matches(word.replace("-", "_").lower(), known, 1, 0.5)
    return f" (did you mean {near[0]!r}?)" if near else "; 'gossamer config example' lists them all"


def _strange_variables(environ: Mapping[str, str]) -> list[str]:
    """Warnings for variables that look like options.

    They are not errors, because an orchestrator may set GOSSAMER_SERVICE_HOST and the like.
    """
    known = {option.variable for option in OPTIONS} | _NOT_OPTIONS
    found = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1, 0.85)
            if near:
                found.append(f"environment variable {name} is no option (did you mean {near[0]}?)")
    return found
