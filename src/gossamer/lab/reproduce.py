"""``gossamer reproduce``: every figure of the seeds, from simulation to page.

    grid      the runs of ``studies``, one in each Spark task, committed in waves
    models    the planes up to a million nodes
    figures   the seeds' figures out of those tables: charts, the table of their numbers, CSV files,
              and the page

Each is a stage (``job``): a stage without changes is skipped, and a killed job continues.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

import gossamer
from gossamer.lab import grid, models, results, seedfigures, studies
from gossamer.lab.seedfigures import Figure
from gossamer.lab.skiplist.workload import SAMPLE
from gossamer.lab.studies import Study
from gossamer.pipeline import job, pages, tables
from gossamer.pipeline.charts import number
from gossamer.pipeline.job import JobError, OnStage, Outcome, Stage, Step
from gossamer.pipeline.report import STANDS_IN

SMALL = (
    "This is the small study, a check that all parts are in place: its sizes and numbers are not "
    "the seeds'."
)
NO_PICTURES = (
    "The seeds' files hold no pictures. Each figure is drawn from tables of this run and compared "
    "only with the numbers and words of the seed's own text. The sentence on agreement is made "
    "from "
    "the numbers."
)
PARTS = 2
"""The number of tasks that follow each modelled fabric."""
WAVE = 16
"""The number of runs that are committed together. The longest begin first."""


class Result(Struct, frozen=True):
    """The result of a reproduction."""

    out: Path
    report: Path
    stages: list[Outcome]
    figures: list[Figure]
    runs: int
    failed: list[str]
    """Commands of the runs that failed or were not good."""

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.stages)

    @property
    def ok(self) -> bool:
        return not self.failed


def run(
    spark: Callable[[], SparkSession],
    out: Path,
    study: Study,
    on_stage: OnStage = lambda stage, skipped: None,
    on_wave: grid.OnWave = lambda done, all: None,
    *,
    png: bool = True,
) -> Result:
    outcomes = job.run(spark, out, plan(out, study, on_wave, png=png), on_stage)
    read = results.read(out)
    failed = [row["replay"] for row in read.grid if row["status"] != "ok"]
    return Result(out, out / "report.html", outcomes, drawn(read, study), len(read.grid), failed)


def drawn(read: results.Results, study: Study) -> list[Figure]:
    """All figures.

    If a figure lacks its run, the error names the first failed run and the command that repeats it.
    """
    try:
        return seedfigures.figures(read, study)
    except (IndexError, KeyError, ValueError):
        failed = [row for row in read.grid if row["status"] == "failed"]
        if not failed:
            raise
        raise JobError(
            f"{len(failed)} of {len(read.grid)} runs failed, and a figure lacks its run. "
            f"The first: {failed[0]['error']}; again: {failed[0]['replay']}"
        ) from None


def plan(
    out: Path, study: Study, on_wave: grid.OnWave = lambda done, all: None, *, png: bool = True
) -> tuple[Stage, ...]:
    drawn = (
        *(f"gossamer.lab.{name}" for name in ("seedfigures", "results", "reproduce", "studies")),
        *(f"gossamer.pipeline.{name}" for name in ("charts", "drawing", "pages")),
    )
    return (
        grid.stage(studies.grid_cells(study), WAVE, on_wave),
        models.stage(studies.model_plans(study), PARTS),
        Stage(
            "figures",
            lambda step: _figures(step, study, png=png),
            reads=tuple(tables.TABLES[name] for name in results.READS),
            writes=(tables.FIGURES,),
            products=("report.html", "charts", "csv"),
            settings=[msgspec.to_builtins(study), png],
            code=drawn,
        ),
    )


def _figures(step: Step, study: Study, *, png: bool) -> Mapping[str, DataFrame]:
    read = results.read(step.out)
    found = drawn(read, study)
    charts = step.product("charts")
    charts.mkdir()
    for figure in found:
        (charts / f"{figure.key}.svg").write_text(figure.drawing.svg_file(), encoding="utf-8")
        if png:
            (charts / f"{figure.key}.png").write_bytes(figure.drawing.png())
    _csv(step)
    write_page(step.product("report.html"), study, found, read)
    rows = [
        (figure.key, each.name, float(each.found), each.stated)
        for figure in found
        for each in figure.numbers
    ]
    return {"figures": step.spark.createDataFrame(rows, tables.FIGURES.ddl)}


def _csv(step: Step) -> None:
    """The tables again as CSV, for readers without Parquet."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    folder = step.product("csv")
    folder.mkdir()
    for table in step.stage.reads:
        rows = pq.read_table(step.out / table.name).sort_by(
            [(key, "ascending") for key in table.key]
        )
        pc.write_csv(rows, folder / f"{table.name}.csv")


# ---------------------------------------------------------------------------------- page


def write_page(path: Path, study: Study, drawn: Sequence[Figure], read: results.Results) -> Path:
    compared = [figure for figure in drawn if figure.agrees is not None]
    agreed = sum(bool(figure.agrees) for figure in compared)
    bad = [row for row in read.grid if row["status"] != "ok"]
    body = [
        pages.tiles({
            "figures": len(drawn), "agree with the seed": f"{agreed} of {len(compared)}",
            "simulations": len(read.grid), "runs that failed": len(bad),
            "largest model, nodes": max(study.models),
        }),
        "" if study.models == studies.Study().models else f"<p class=bad>{escape(SMALL)}</p>",
        f"<p>{escape(_origin(study))}</p>",
        f"<p>{escape(NO_PICTURES)}</p>",
        "<h2>At a glance</h2>",
        f'<div class="glance">{"".join(map(_glance, drawn))}</div>',
    ]  # fmt: skip
    at = 0
    for seed, title, makes in seedfigures.SEEDS:
        body.append(f"<h2>{escape(title if seed == 'scale' else f'Seed {seed}. {title}')}</h2>")
        body.append(f'<div class="cards">{"".join(map(_card, drawn[at : at + len(makes)]))}</div>')
        at += len(makes)
    if bad:
        body += [
            "<h2>Runs that failed</h2>",
            pages.table(bad, ["overlay", "size", "status", "error", "replay"]),
        ]
    body += ["<h2>How it was made</h2>", _made(study, read)]
    lead = (
        "Figures and claims of the three seed documents, reproduced: simulated, modelled, counted "
        "by Spark, drawn from tables."
    )
    return pages.write(path, "Gossamer: the seeds' figures, reproduced", lead, body)


def _glance(figure: Figure) -> str:
    head = f"<b>{escape(figure.key)}</b> {escape(figure.title)} {_verdict(figure)}"
    return f'<div>{head}<br><span class="soft">{_sentence(figure)}</span></div>'


def _sentence(figure: Figure) -> str:
    """The sentence without line breaks before a percent sign or inside "K = 6"."""
    return re.sub(
        r" (?=%)|(?<=\bK) (?=[=-] )|(?<=\bK [=-]) ", "\N{NO-BREAK SPACE}", escape(figure.sentence)
    )


def _verdict(figure: Figure) -> str:
    return pages.chip(
        {True: "agrees", False: "differs", None: "not in the seed"}[figure.agrees], figure.agrees
    )


def _origin(study: Study) -> str:
    if study.trace == SAMPLE:
        return STANDS_IN
    return STANDS_IN.split(".")[0] + f". Here it is the trace in {Path(study.trace).name}."


def _card(figure: Figure) -> str:

    def shown(value: float | None, unit: str) -> str:
        return "–" if value is None else f"{number(value)} {unit}".strip()

    rows = [
        {
            "number": each.name,
            "here": shown(each.found, each.unit),
            "the seed": shown(each.stated, each.unit),
        }
        for each in figure.numbers
    ]
    return (
        f'<section class="card"><h3>{escape(figure.key)} · {escape(figure.title)} '
        f"{_verdict(figure)}</h3>{figure.drawing.svg()}"
        f"<blockquote>{escape(figure.says)}</blockquote><p>{_sentence(figure)}</p>"
        + pages.folded("Numbers", pages.table(rows, ["number", "here", "the seed"]))
        + pages.folded("Do it again", f"<p><code>{escape(figure.replay)}</code></p>")
        + "</section>"
    )


def _made(study: Study, read: results.Results) -> str:
    counts: dict[tuple[str, str], list[int]] = {}
    for row in read.grid:
        counts.setdefault((row["overlay"], row["fault"]), []).append(row["size"])
    rows = [
        {
            "overlay": overlay,
            "fault": fault,
            "runs": len(sizes),
            "smallest": min(sizes),
            "largest": max(sizes),
        }
        for (overlay, fault), sizes in sorted(counts.items())
    ]
    facts = {
        "gossamer": gossamer.__version__,
        "Python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "seed of the runs": str(study.seed),
    }  # fmt: skip
    told = pages.table(
        [{"fact": name, "value": value} for name, value in facts.items()], ["fact", "value"]
    )
    note = (
        "<p>Simulations run in virtual time: the same seed gives the same numbers on any machine, "
        "on one core or a cluster. The tables are beside this page as Parquet, and in "
        "<code>csv/</code>; the charts as SVG and PNG in <code>charts/</code>.</p>"
    )
    return (
        note
        + told
        + pages.folded(
            "The runs", pages.table(rows, ["overlay", "fault", "runs", "smallest", "largest"])
        )
    )
