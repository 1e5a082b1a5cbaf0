"""``gossamer node``: run a node until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from gossamer.cli.common import Stop, json_option, run_until_signal
from gossamer.cli.options import options


@click.command()
@options
@json_option
def node(config_file: str | None, as_json: bool, **flags: Any) -> int:
    """Run a node of the fabric until SIGTERM or Ctrl-C.

    After the signal it takes no new work, waits for receipts (--drain) and leaves politely. A
    second signal ends it at once.

    \b
    Examples:
      gossamer node                                             the first node, on 127.0.0.1:7400
      gossamer node --listen 127.0.0.1:0 --join 127.0.0.1:7400  another one
      gossamer node --data-dir ./node1                          keeps identity and accepted events
      gossamer node --config gossamer.toml --log-format json    as a service; see docs/operations.md
      gossamer node --metrics-address 9464                      serves /metrics and /healthz
      gossamer node --topic "weather=city STRING, temp INT"     advertises a topic
      gossamer node --keys ./keys --listen 0.0.0.0:7400         TLS; see gossamer keys --help

    \b
    Every option is also an environment variable (in brackets) and a key of the file:
    --data-dir is GOSSAMER_DATA_DIR and data_dir.
    A flag wins over the environment, and the environment wins over the file.
    'gossamer config check' and 'gossamer config show' show the effective values.
    Exit codes: 0 left politely, 1 accepted events were lost with it, 2 could not start,
    130 ended by a second signal.
    """
    from gossamer.cli import logs
    from gossamer.cli.settings import resolve

    settings = resolve(flags, os.environ, config_file)
    logs.set_up(settings["log_format"], settings["log_level"])

    async def main(stop: Stop) -> int:
        import logging

        import gossamer
        from gossamer.net.journal import say
        from gossamer.net.service import serve

        for warning in settings.warnings:
            say(logging.WARNING, warning)
        this = gossamer.Node(**settings.node_arguments())

        def started(metrics: str) -> None:
            peer = f"{this.peer:016x}"
            if as_json:
                about = {
                    "node": peer,
                    "address": this.address,
                    "incarnation": this.incarnation,
                    "metrics": metrics,
                }
                click.echo(msgspec.json.encode(about).decode())
            else:
                click.echo(f"node {peer} listens on {this.address}; Ctrl-C leaves the fabric")
            stop.patient = True

        return await serve(
            this,
            stop,
            topics=settings["topics"],
            drain=settings["drain"],
            metrics_address=settings["metrics_address"],
            started=started,
        )

    return run_until_signal(main)
