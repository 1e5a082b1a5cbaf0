"""``gossamer simulate fuzz``: a peer that attacks a node with messages, in virtual time."""

from __future__ import annotations

import secrets
import time

import click
import msgspec

from gossamer.cli.bars import Bar
from gossamer.cli.common import json_option


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="The time to attack.",
)
@click.option("--seed", type=int, help="The seed of all episodes. [random]")
@click.option("--episode", type=click.IntRange(0), help="Only this one: replays a failure.")
@json_option
def fuzz(seconds: float, seed: int | None, episode: int | None, as_json: bool) -> int:
    """Attack whole nodes with made, bent and broken messages.

    A node must not raise, grow without bound, or send a message that cannot be read. Exit code 1 if
    a node failed. Each failure prints the line that replays it.

    \b
    Examples:
      gossamer simulate fuzz --seconds 600
      gossamer simulate fuzz --seed 7 --episode 31
    """
    from gossamer.sim.fuzz import run

    seed = secrets.randbits(32) if seed is None else seed
    with Bar("fuzzing") as bar:
        episodes, counts, failures = run(
            seed, seconds=seconds if episode is None else 1e9, clock=time.monotonic,
            told=bar.update, first=episode or 0, most=1 if episode is not None else 1 << 30,
        )  # fmt: skip
    sent = sum(count for kind, count in counts.items() if kind[0].isupper())
    if as_json:
        about = {
            "seed": seed,
            "episodes": episodes,
            "messages": sent,
            "refused": counts["refused"],
            "counts": dict(counts),
            "failures": [msgspec.to_builtins(failure) for failure in failures],
            "seconds": round(bar.seconds, 1),
        }
        click.echo(msgspec.json.encode(about).decode())
    else:
        click.echo(
            f"seed {seed}: {episodes:,} episodes in {bar.seconds:.0f} s, {sent:,} messages taken, "
            f"{counts['refused']:,} refused by the codec, {len(failures)} failures"
        )
        for failure in failures:
            click.echo(
                f"step {failure.step}: {failure.what}\n"
                f"  gossamer simulate fuzz --seed {seed} --episode {failure.episode}"
            )
    return 1 if failures else 0
