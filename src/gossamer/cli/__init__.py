"""The command line: one file a command. Commands parse, call one function, and print."""

from gossamer.cli.app import main

__all__ = ["main"]
