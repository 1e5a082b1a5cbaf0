"""``gossamer config``: check and show a node's options before it is started."""

from __future__ import annotations

import json
import os
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli.common import json_option
from gossamer.cli.options import OPTIONS, Option, options


@click.group()
def config() -> None:
    """Check and show the options of 'gossamer node', from flags, environment and a TOML file.

    \b
    Examples:
      gossamer config example > gossamer.toml      every option, with its default
      gossamer config check gossamer.toml          every problem of the file, with its place
      gossamer config show --config gossamer.toml  effective values, and where each came from
    """


@config.command()
@click.argument("file", required=False, envvar="GOSSAMER_CONFIG")
@json_option
def check(file: str | None, as_json: bool) -> int:
    """Read a file and the environment as 'gossamer node' would. Exit code 2 if something is wrong.

    \b
    Examples:
      gossamer config check gossamer.toml
      GOSSAMER_K=40 gossamer config check --json
    """
    from gossamer.cli.settings import ConfigError, resolve

    warnings: list[str] = []
    problems: list[str] = []
    count = 0
    try:
        settings = resolve({}, os.environ, file)
        warnings = settings.warnings
        count = sum(setting.source != "default" for setting in settings.by_name.values())
    except ConfigError as error:
        problems = error.problems
    if as_json:
        about = {
            "ok": not problems,
            "file": file,
            "set": count,
            "problems": problems,
            "warnings": warnings,
        }
        click.echo(msgspec.json.encode(about).decode())
    else:
        for problem in problems:
            click.echo(f"gossamer: {problem}", err=True)
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        if not problems:
            click.echo(
                f"{file or 'the environment'} is fine: {count} of {len(OPTIONS)} options are set"
            )
    return 2 if problems else 0


@config.command()
@options
@json_option
def show(config_file: str | None, as_json: bool, **flags: Any) -> int:
    """Show the effective value of every option, and where it came from. The command takes the flags
    of 'gossamer node'.

    \b
    Examples:
      gossamer config show --config gossamer.toml
      gossamer config show --config gossamer.toml --k 8 --json
    """
    from gossamer.cli.settings import resolve

    settings = resolve(flags, os.environ, config_file)
    if as_json:
        for name, setting in settings.by_name.items():
            line = {
                "option": name,
                "value": setting.option.kind.show(setting.value),
                "source": setting.source,
            }
            click.echo(msgspec.json.encode(line).decode())
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("option", "value", "from"):
        table.add_column(column, no_wrap=column == "option", overflow="fold")
    for name, setting in settings.by_name.items():
        shown = json.dumps(setting.option.kind.show(setting.value), ensure_ascii=False)
        table.add_row(
            name, shown, setting.source, style="" if setting.source == "default" else "bold"
        )
    Console().print(table)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    return 0


@config.command()
@json_option
def example(as_json: bool) -> int:
    """Print a TOML file with every option, its default and its meaning. All options are commented
    out.

    \b
    Examples:
      gossamer config example > gossamer.toml
    """
    if as_json:
        for option in OPTIONS:
            about = {
                "option": option.name,
                "flag": option.flag,
                "variable": option.variable,
                "help": option.help,
            }
            click.echo(
                msgspec.json.encode({**about, "default": option.kind.show(option.default)}).decode()
            )
        return 0
    click.echo(
        "# Options of 'gossamer node'. A flag wins over the environment, "
        "and the environment wins over this file.\n"
    )
    for option in OPTIONS:
        if option.name != "topics":
            click.echo(f"# {option.help}\n# {option.name} = {_toml(option)}\n")
    click.echo(
        "# Topics to advertise, with their schemas.\n# [topics]\n"
        '# weather = "country STRING, city STRING, temp INT"'
    )
    return 0


def _toml(option: Option) -> str:
    return json.dumps(option.kind.show(option.default))
