"""The check of a table when a stage writes it: columns, NULLs, keys and UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gossamer.pipeline.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ContractError(ValueError):
    """Rows that a table refuses. The message names the table and the fault, with an example."""


class Checked(Struct, frozen=True):
    """The result of a check that a table passed."""

    rows: int
    digest: str
    """The digest of the rows, whatever their order. Equal digests mean equal rows."""


def check_schema(rows: DataFrame, table: Table) -> None:
    """Check that the columns are the table's, in its order and with its types.

    Nullability is not compared, because Parquet does not keep it.
    """
    found = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    wanted = [(field.name, field.dataType.simpleString()) for field in table.schema.fields]
    if found != wanted:
        raise ContractError(f"table {table.name}: {_difference(found, wanted)}")


def check_rows(rows: DataFrame, table: Table) -> Checked:
    """Check for NULL in a required column, for repeated keys and for broken UTF-8.

    The check costs one pass over the rows and one shuffle of the keys.
    """
    from pyspark.sql import functions as sf

    required = {column.name for column in table.columns if column.required} | set(table.key)
    texts = [column.name for column in table.columns if column.type == "STRING"]
    faults = [
        sf.count_if(sf.col(f"`{name}`").isNull()).alias(f"null {name}")
        for name in table.names
        if name in required
    ]
    faults += [sf.count_if(~sf.is_valid_utf8(f"`{name}`")).alias(f"utf8 {name}") for name in texts]
    hashed = sf.xxhash64(*(f"`{name}`" for name in table.names))
    digest = (sf.bit_xor(hashed).alias("xor"), sf.sum(sf.shiftright(hashed, 32)).alias("sum"))
    keys = sf.count_distinct(sf.struct(*(f"`{name}`" for name in table.key))).alias("keys")
    counted = rows.agg(sf.count(sf.lit(1)).alias("rows"), keys, *digest, *faults).first()
    assert counted is not None
    for name in table.names:
        if name in required and counted[f"null {name}"]:
            raise ContractError(
                f"table {table.name}: {counted[f'null {name}']} of {counted['rows']} rows have "
                f"no {name}"
            )
        if name in texts and counted[f"utf8 {name}"]:
            raise ContractError(
                f"table {table.name}: {counted[f'utf8 {name}']} rows have a {name} that is not "
                "UTF-8"
            )
    if counted["keys"] != counted["rows"]:
        repeated = rows.groupBy(*(f"`{name}`" for name in table.key)).count().where("count > 1")
        first = repeated.orderBy(*table.key).first()
        assert first is not None
        example = ", ".join(f"{name}={first[name]!r}" for name in table.key)
        raise ContractError(
            f"table {table.name}: key ({example}) occurs {first['count']} times; grain: "
            f"{table.grain}"
        )
    both = ((counted["xor"] or 0) % 2**64, (counted["sum"] or 0) % 2**64)
    return Checked(int(counted["rows"]), f"{counted['rows']:x}-{both[0]:016x}{both[1]:016x}")


def _difference(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> str:
    """The fault of these columns, in words."""
    have, want = dict(found), dict(wanted)
    said = [f"no column {name}" for name in want if name not in have]
    said += [f"unknown column {name}" for name in have if name not in want]
    said += [
        f"{name} is {have[name]}, not {want[name]}"
        for name in want
        if name in have and have[name] != want[name]
    ]
    return "; ".join(said) or f"columns are in the order {', '.join(name for name, _ in found)}"
