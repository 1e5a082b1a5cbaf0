"""The ``gossamer`` command: a group that imports a command when it is used, and prints all
errors.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click
import msgspec

import gossamer
from gossamer.cli.plain import plain_lines

# name -> (module, attribute, one line for the list)
_COMMANDS = {
    "node": ("gossamer.cli.node", "node", "Run a node of the fabric."),
    "advertise": ("gossamer.cli.advertise", "advertise", "Make a topic known, with its schema."),
    "subscribe": (
        "gossamer.cli.subscribe",
        "subscribe",
        "Print the events of a topic that pass a filter.",
    ),
    "publish": ("gossamer.cli.publish", "publish", "Publish events and wait for their receipts."),
    "status": ("gossamer.cli.status", "status", "Show the nodes that run on this machine."),
    "lookup": ("gossamer.cli.lookup", "lookup", "Show which subscriptions would take an event."),
    "tree": ("gossamer.cli.tree", "tree", "Draw the dispatch tree from a running node."),
    "top": ("gossamer.cli.top", "top", "Watch a running node: rates, peers, queues, drops."),
    "topics": ("gossamer.cli.topics", "topics", "List the topics, and who advertised them."),
    "view": ("gossamer.cli.view", "view", "Show which nodes want which topics, and watch changes."),
    "config": ("gossamer.cli.config", "config", "Check and show the options of a node."),
    "keys": ("gossamer.cli.keys", "keys", "Make a fabric's authority, and keys for its nodes."),
    "simulate": (
        "gossamer.cli.simulate",
        "simulate",
        "Run a fabric in virtual time, with faults, from one seed.",
    ),
    "pipeline": (
        "gossamer.cli.pipeline_grid",
        "pipeline",
        "From traces to verdicts and figures, on Spark.",
    ),
    "reproduce": (
        "gossamer.cli.reproduce",
        "reproduce",
        "Reproduce the figures of the seeds, on one page.",
    ),
    "demo": (
        "gossamer.cli.demo",
        "demo",
        "A fabric of real processes on this machine, judged by Spark.",
    ),
}

OK, FAILED, MISUSE = 0, 1, 2
# They are named by text, because not every version of click has the last one.
_UNTOLD = (
    "MissingParameter",
    "NoSuchOption",
    "NoSuchCommand",
)


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = _COMMANDS.get(cmd_name)
        if found is None:
            return None
        command: click.Command = getattr(import_module(found[0]), found[1])
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The list comes from the table, because importing the commands would import Spark.
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


def _version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from gossamer.filters.loops import how

        click.echo(f"gossamer {gossamer.__version__} ({how()})")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version,
    help="Show the version, and whether the hot loops are compiled, and exit.",
)  # fmt: skip
def app() -> None:
    """Brokerless publish/subscribe: topics like tables, subscriptions like SELECT * FROM topic
    WHERE filter.

    \b
    Try it in four terminals:
      gossamer node
      gossamer advertise weather "country STRING, city STRING, temp INT"
      gossamer subscribe weather "country = 'CH' AND temp > 30"
      gossamer publish weather '{"country": "CH", "city": "Geneva", "temp": 31}'

    \b
    Or see it all at once, judged by Spark:
      gossamer demo
    """


def _known_errors() -> tuple[type[Exception], ...]:
    """Errors that a user can cause and correct.

    Any other error is our fault and shows its traceback.
    """
    from gossamer.cli.settings import ConfigError
    from gossamer.filters import EventError, FilterError, SchemaError
    from gossamer.net.admin import AdminError
    from gossamer.net.dialler import AddressError
    from gossamer.net.disk import DataDirectoryError
    from gossamer.net.node import NodeError
    from gossamer.node import RetentionError, RouteError, TapError, TopicError
    from gossamer.pipeline.masters import SparkStartError
    from gossamer.pipeline.session import MissingExtraError
    from gossamer.trace import TraceError

    return (
        AddressError,
        AdminError,
        ConfigError,
        DataDirectoryError,
        EventError,
        FilterError,
        MissingExtraError,
        NodeError,
        SchemaError,
        # An OSError concerns the user's own files and folders. Other system errors have classes of
        # their own.
        OSError,
        RetentionError,
        RouteError,
        SparkStartError,
        TapError,
        TopicError,
        TraceError,
    )


def main(argv: list[str] | None = None) -> None:
    """The entry point. Exit codes: 0 fine, 1 something failed, 2 misuse."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        result: Any = app.main(args=arguments, prog_name="gossamer", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(MISUSE)
    except click.ClickException as error:
        _say(_misuse(error), "usage", arguments)
        sys.exit(MISUSE)
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("gossamer: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (for example head) has gone, which is not an error.
        sys.stderr.close()
        sys.exit(OK)
    except Exception as error:
        if not isinstance(error, _known_errors()):
            raise
        _say(_plain(error), type(error).__name__, arguments)
        sys.exit(MISUSE)
    sys.exit(result if isinstance(result, int) else OK)


def _misuse(error: click.ClickException) -> str:
    """Click's message, with a hint at --help if the message does not give the remedy."""
    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    if message.startswith("Got unexpected extra argument"):
        return (
            f"{message}: put quotes around text that has spaces. "
            f"See: {error.ctx.command_path} --help"
        )
    return (
        f"{message} See: {error.ctx.command_path} --help"
        if type(error).__name__ in _UNTOLD
        else message
    )


def _plain(error: Exception) -> str:
    """The message without the number that Python puts before the system's words."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return str(error)


def _say(message: str, kind: str, arguments: list[str]) -> None:
    if "--json" in arguments:
        sys.stdout.write(msgspec.json.encode({"error": message, "kind": kind}).decode() + "\n")
    # An error may have text of peers in it.
    sys.stderr.write(f"gossamer: {plain_lines(message)}\n")
