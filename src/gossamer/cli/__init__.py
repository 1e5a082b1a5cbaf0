"""The command line, with one file for each command.

A command parses, calls one function, and prints.
"""

from gossamer.cli.app import main

__all__ = ["main"]
