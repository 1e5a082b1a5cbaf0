"""The tables' definitions are plain data, and a check refuses rows that break them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gossamer.pipeline.contracts import ContractError, check_rows, check_schema
from gossamer.pipeline.tables import EXPECTED, HOLDINGS, TABLES, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = ("p1", 5, 1, "f.csv", 2)


def test_every_table_states_its_contract() -> None:
    assert list(TABLES) == [
        *("peers", "items", "holdings", "sessions", "rtts", "quarantine"),
        *("topics", "filters", "events", "churn", "matches", "expected"),
        *("runs", "subscriptions", "publications", "deliveries", "loads", "metrics"),
        *("grid", "measures", "spreads", "news", "reconfigurations", "models", "figures"),
    ]  # fmt: skip
    for table in TABLES.values():
        assert table.meaning
        assert table.grain
        assert table.key
        assert set(table.key) <= set(table.names)
        assert len(set(table.names)) == len(table.names)
        assert all(column.meaning for column in table.columns)
        assert all(column.required for column in table.columns if column.name in table.key)
        assert plain(table)["columns"][0]["name"] == table.names[0]


@pytest.mark.spark
def test_schemas_are_spark_schemas(spark: SparkSession) -> None:
    for table in TABLES.values():
        assert [field.name for field in table.schema.fields] == table.names


@pytest.mark.spark
def test_good_rows_pass(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW, ("p2", *ROW[1:])], HOLDINGS.ddl)
    check_schema(rows, HOLDINGS)
    checked = check_rows(rows, HOLDINGS)
    assert checked.rows == 2
    # The order of the rows does not matter.
    turned = rows.orderBy("peer", ascending=False).repartition(3)
    assert check_rows(turned, HOLDINGS) == checked
    other = spark.createDataFrame([ROW, ("p2", 6, *ROW[2:])], HOLDINGS.ddl)
    assert check_rows(other, HOLDINGS).digest != checked.digest


@pytest.mark.spark
@pytest.mark.parametrize(
    ("ddl", "row", "said"),
    [
        ("event BIGINT", (1,), "no column filter; no column due"),
        ("event BIGINT, filter BIGINT, due BOOLEAN, x INT", (1, 1, True, 1), "unknown column x"),
        ("event BIGINT, filter INT, due BOOLEAN", (1, 1, True), "filter is int, not bigint"),
        (
            "filter BIGINT, event BIGINT, due BOOLEAN",
            (1, 1, True),
            "columns are in the order filter, event, due",
        ),
    ],
)
def test_a_wrong_schema_is_refused(
    spark: SparkSession, ddl: str, row: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ContractError, match=f"table expected: {said}"):
        check_schema(spark.createDataFrame([row], ddl), EXPECTED)


@pytest.mark.spark
def test_a_repeated_key_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 1, True), (2, 1, True), (1, 1, False)], EXPECTED.ddl)
    with pytest.raises(ContractError, match=r"key \(event=1, filter=1\) occurs 2 times"):
        check_rows(rows, EXPECTED)


@pytest.mark.spark
def test_nulls_are_refused_in_keys_and_required_columns(spark: SparkSession) -> None:
    with pytest.raises(ContractError, match="1 of 2 rows have no filter"):
        check_rows(spark.createDataFrame([(1, None, True), (2, 1, True)], EXPECTED.ddl), EXPECTED)
    with pytest.raises(ContractError, match="1 of 1 rows have no source"):
        check_rows(spark.createDataFrame([(*ROW[:3], None, 2)], HOLDINGS.ddl), HOLDINGS)


@pytest.mark.spark
def test_text_that_is_not_utf8_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW], HOLDINGS.ddl).selectExpr(
        "CAST(X'70FF' AS STRING) AS peer", "item", "times", "source", "line"
    )
    with pytest.raises(ContractError, match="1 rows have a peer that is not UTF-8"):
        check_rows(rows, HOLDINGS)
