"""Which DataFrames are nothing but columns of Parquet files: tasks read those files themselves (``rowgroups``), and no row has to
go through the JVM to get to Python, which takes longer than to find what matches in it.

A plan tells: projections of plain columns, or of structs of them, over files that Spark would read as Parquet. What is told of the
files must be what is in them, for there Spark and Arrow agree: the same names, whole numbers and strings, in every file. Whatever
else a plan may hold (a condition, a cast, columns that are parts of paths, types that are read by rules, files that may be missing
or broken, a file system that is not the machine's own) is left to Spark, and so is every error: this says yes or no.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from pyspark.sql import types as st

from gossamer.pipeline import rowgroups
from gossamer.pipeline.rowgroups import Footer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES_MAX = 1000
"""The driver looks at the end of each file: of more, Spark is the one to look, on all machines."""
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_RELATION = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_LENIENT = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.fieldId.read.enabled",
)
"""Settings by which Spark reads other rows, or other columns, than the files' names and numbers tell."""
_TYPES: dict[st.DataType | None, str] = {
    st.LongType(): "int64",
    st.IntegerType(): "int32",
    st.ShortType(): "int16",
    st.ByteType(): "int8",
    st.StringType(): "string",
}
"""Of Spark, and what Arrow calls them. A string with a collation is equal to none of these."""

Path = tuple[str, ...]
"""A column of the files, by its name; the field of a column that is a struct, by the names of both."""


class Files(NamedTuple):
    footers: tuple[Footer, ...]
    columns: dict[Path, Path]
    """What the DataFrame calls them, and the files."""
    types: dict[Path, str]


def files(rows: DataFrame, wanted: Sequence[Path]) -> Files | None:
    """The files that these columns are read from; None: it takes Spark to read them."""
    schema = {path: _type(rows.schema, path) for path in wanted}
    if any(kind not in _TYPES for kind in schema.values()):
        return None
    session = rows.sparkSession
    plan = (
        rows._jdf.queryExecution().withCachedData()
    )  # what is cached is not read from its files again
    nodes = msgspec.json.decode(plan.toJSON())
    columns = _columns(nodes, wanted)
    if columns is None:
        return None
    for _ in nodes[1:]:
        plan = plan.child()
    paths = _paths(plan.relation())
    if (
        not paths
        or len(paths) > FILES_MAX
        or any(session.conf.get(name) == "true" for name in _LENIENT)
    ):
        return None
    asked = {columns[path]: _TYPES[kind] for path, kind in schema.items()}
    footers = [rowgroups.footer(path, asked) for path in paths]
    known = tuple(footer for footer in footers if footer is not None)
    return (
        Files(known, columns, {path: asked[columns[path]] for path in wanted})
        if len(known) == len(footers)
        else None
    )


def _type(schema: st.StructType, path: Path) -> st.DataType | None:
    kind: st.DataType = schema
    for name in path:
        alike = (
            [field for field in kind.fields if field.name == name]
            if isinstance(kind, st.StructType)
            else []
        )
        if len(alike) != 1:
            return None
        kind = alike[0].dataType
    return kind


def _columns(nodes: Sequence[dict[str, Any]], wanted: Sequence[Path]) -> dict[Path, Path] | None:
    """The columns by what the relation at the bottom calls them; None if the plan is more than projections of one."""
    if nodes[-1]["class"] != _RELATION or any(
        not node["class"].endswith(".logical.Project") for node in nodes[:-1]
    ):
        return None
    known: dict[
        tuple[int, str], Any
    ] = {}  # an attribute by its id: a column's name, or names with a column each
    for output in nodes[-1]["output"]:
        known[_id(output[0])] = (output[0]["name"],)
    names = {output[0]["name"]: known[_id(output[0])] for output in nodes[-1]["output"]}
    for node in reversed(nodes[:-1]):
        names = {}
        for expression in node["projectList"]:
            tree = iter(expression)
            top = next(tree)
            alias = top["class"].endswith(".Alias")
            found = _meant(next(tree), tree, known) if alias else _meant(top, tree, known)
            known[_id(top)] = names[top.get("name", "")] = found
    columns = {}
    for path in wanted:
        found = names.get(path[0])
        for name in path[1:]:
            found = _field(found, name)
        if not isinstance(found, tuple) or any("." in name for name in found):
            return None
        columns[path] = found
    return columns


def _meant(
    node: dict[str, Any], tree: Iterator[dict[str, Any]], known: dict[tuple[int, str], Any]
) -> Any:
    """Columns of the files that an expression is made of; None for anything but a column, or a struct of such."""
    kind = node["class"].rsplit(".", 1)[-1]
    if kind == "AttributeReference":
        return known.get(_id(node))
    if kind == "GetStructField":
        inner = _meant(next(tree), tree, known)
        return _field(inner, node.get("name"))
    if kind != "CreateNamedStruct":
        return None
    fields = {}
    for _ in range(node["num-children"] // 2):
        name = next(tree)
        value = next(tree)
        # What is not understood has children of its own, and where they end is not known either.
        if (found := _meant(value, tree, known)) is None or not name["class"].endswith(".Literal"):
            return None
        fields[name["value"]] = found
    return fields


def _field(found: Any, name: str | None) -> Any:
    if isinstance(found, dict):
        return found.get(name)
    return (*found, name) if found and name else None


def _id(node: dict[str, Any]) -> tuple[int, str]:
    one = node.get("exprId", {})
    return one.get("id", -1), one.get("jvmId", "")


def _paths(relation: Any) -> list[str] | None:
    """On this machine, or one that is mounted on all; None: they are not, or not Parquet, or read by options of their own."""
    if (
        relation.getClass().getName() != _FILES
        or relation.fileFormat().getClass().getName() != _PARQUET
    ):
        return None
    if relation.partitionSchema().length() or not set(_keys(relation.options())) <= {"path"}:
        return None
    addresses = [urlsplit(path) for path in relation.location().inputFiles()]
    if any(address.scheme != "file" or address.netloc for address in addresses):
        return None
    return [unquote(address.path) for address in addresses]


def _keys(options: Any) -> list[str]:
    return [key for key in options.keys().mkString("\n").split("\n") if key]
