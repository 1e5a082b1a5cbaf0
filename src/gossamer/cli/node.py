"""``gossamer node``: run a node until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from gossamer.cli.common import DEFAULT_ADDRESS, Stop, json_option, node_options, run_until_signal


@click.command()
@click.option("--listen", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Port 0 picks one.")
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A node of the fabric to join; may be given several times.")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Keep identity and outbox here.")
@click.option(
    "--k", default=6, show_default=True, type=click.IntRange(1, 32), help="Any K - 1 nodes may fail at once; links a node."
)
@click.option("--insecure", is_flag=True, help="Allow to listen beyond loopback, open to anybody who can reach the port.")
@node_options
@json_option
def node(
    listen: str,
    join: tuple[str, ...],
    data_dir: Path | None,
    k: int,
    insecure: bool,
    trace_dir: Path | None,
    fabric: str,
    wait: float,
    as_json: bool,
) -> int:
    """Run a node of the fabric until Ctrl-C.

    \b
    Examples:
      gossamer node                                             the first node of a fabric, on 127.0.0.1:7400
      gossamer node --listen 127.0.0.1:0 --join 127.0.0.1:7400   another one
      gossamer node --data-dir ./node1                          keeps its identity and what it has accepted
    """

    async def main(stop: Stop) -> int:
        import gossamer
        from gossamer.net import admin

        running = gossamer.Node(
            listen=listen,
            join=join,
            data_dir=data_dir,
            trace_dir=trace_dir,
            k=k,
            fabric=fabric,
            insecure=insecure,
            join_timeout=wait,
        )
        async with running as this:
            server, path = await admin.serve(this.address, this.answer)
            try:
                if as_json:
                    started = {"node": this.status()["node"], "address": this.address, "incarnation": this.incarnation}
                    click.echo(msgspec.json.encode(started).decode())
                else:
                    click.echo(f"node {this.status()['node']} listens on {this.address}; Ctrl-C leaves the fabric")
                stop.patient = True
                await stop.wait()
            finally:
                server.close()
                path.unlink(missing_ok=True)
        return 0

    return run_until_signal(main)
