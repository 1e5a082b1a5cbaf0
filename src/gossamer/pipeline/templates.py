"""Filters' texts that differ only in their literals are one template, with the literals as columns.

For example, ``name = 'x' AND size > 5`` is the row ('x', 5) of ``name = @s AND size > @i``. The
letters of the texts decide which texts have one template, and all texts are compared at once.
Spark's own parser decides whether they really mean the same except for their literals: it parses
the template and one of its texts, and the two trees must be equal except for a literal in each
place. So the parser runs once for each template, and not for each text. Its tree also tells how to
join: by equalities, ranges and alternatives (``Branch``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from gossamer.pipeline import texts

PLACE = "gossamer.{}"
"""The column of a literal, beside the attributes: an attribute's name has no dot."""
BRANCHES_MAX = 8
_APART = (
    st.StructType().add("template", st.StringType()).add("literals", st.ArrayType(st.StringType()))
)
_KINDS = {
    # The letter of a kind, the type that Spark's parser gives it, and the family of values that it
    # can be compared with.
    "s": ("STRING", "string"),
    "d": ("DATE", "date"),
    "t": ("TIMESTAMP", "timestamp"),
    "e": ("DOUBLE", "number"),
    "n": ("DECIMAL(38,18)", "number"),
    "i": ("BIGINT", "number"),
}
FAMILIES = {letter: family for letter, (_, family) in _KINDS.items()}
_MARK = "@[sdteni]"
# A text is left whole unless it passes two tests. Without its literals it has only these
# characters: no quotes, comments or parameters. And a literal stands only beside punctuation and
# these words: no ESCAPE '!', X'1F', INTERVAL '1' DAY, 5L.
_WORDS = "AND|OR|NOT|LIKE|RLIKE|BETWEEN|IN|IS"
_STRANGE = r"[^\w\s.,()=<>!@+-]"
_ODD = rf"\b(?!(?:{_WORDS})\b)\w++\s*+@|{_MARK}[\w@]|{_MARK}\s++(?!(?:{_WORDS})\b)[\w@]|--"
_not_plain = re.compile(f"{_STRANGE}|{_ODD}", re.ASCII | re.IGNORECASE)
_ABOVE, _BELOW = ("GreaterThan", "GreaterThanOrEqual"), ("LessThan", "LessThanOrEqual")
_SIGNS = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TURNED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Place(Struct, frozen=True):
    """A literal of a template. ``minus`` means that the template has a minus before it."""

    number: int
    minus: bool = False


class Range(Struct, frozen=True):
    attribute: str
    """As SQL: `a`.`b`"""
    low: Place | None = None
    high: Place | None = None


class Comparison(Struct, frozen=True):
    attribute: str
    sign: str
    """=, <, <=, > or >=, with the attribute to the left."""
    place: Place


class Branch(Struct, frozen=True):
    """The known conditions of one alternative of an OR.

    Spark evaluates the rest of the alternative.
    """

    equal: tuple[tuple[str, Place], ...] = ()
    member: tuple[str, tuple[Place, ...]] | None = None
    """attribute IN (places)"""
    ranges: tuple[Range, ...] = ()
    like: tuple[str, Place] | None = None
    """attribute LIKE place"""
    whole: tuple[Comparison, ...] | None = None
    """The whole condition, if it consists only of comparisons of attributes with literals.

    Otherwise None.
    """

    @property
    def keys(self) -> list[Place]:
        return [place for _, place in self.equal] + list(self.member[1] if self.member else ())


class Template(Struct, frozen=True):
    name: str
    condition: str
    """SQL over attributes and places."""
    kinds: tuple[str, ...]
    """The kind of each place."""
    branches: tuple[Branch, ...]
    """The condition is TRUE only where one of these is.

    If there are none, nothing is known of it.
    """


class _Node(NamedTuple):
    kind: str
    parts: str
    """The name of the attribute or function, or the value of the literal."""
    children: tuple[_Node, ...]


def take_apart(filters: DataFrame) -> DataFrame:
    """Add columns template and literals to (filter, text, ..). The template is NULL where the text
    is better left whole.

    A template is the text with a mark for each literal: ``@`` and the letter of its kind. So the
    literals of equal templates have equal types (``texts``). Questions that depend only on the
    template are not answered here for each text, but once (``is_plain``).
    """
    columns = st.StructType([*filters.schema.fields, *_APART.fields])
    apart = filters.mapInArrow(texts.take_apart, columns)
    return apart.withColumn("template", sf.when(_readable(), sf.col("template")))


def is_plain(template: str) -> bool:
    """Whether the texts of a template can be taken apart with certainty, judged by the words beside
    the literals.
    """
    return _not_plain.search(template) is None


def _readable() -> Column:
    """Whether Spark reads every literal.

    A date or timestamp may be impossible: DATE '2020-99-99'.
    """
    marks = sf.regexp_extract_all("template", sf.lit("@([sdteni])"), sf.lit(1))

    def good(mark: Column, literal: Column) -> Column:
        day = sf.when(mark == "d", value(literal, "d").isNotNull())
        return sf.coalesce(day, sf.when(mark == "t", value(literal, "t").isNotNull()), sf.lit(True))

    dated = sf.col("template").contains("@d") | sf.col("template").contains("@t")
    return sf.when(
        dated, sf.forall(sf.zip_with(marks, "literals", good), lambda one: one)
    ).otherwise(sf.lit(True))


def value(literal: Column, kind: str) -> Column:
    """A literal's text as a value.

    It never raises, because Spark may evaluate this for the literals of any template.
    """
    if FAMILIES[kind] == "number":
        return literal.try_cast(_KINDS[kind][0])
    quoted = sf.substr(literal, sf.lit(2), sf.length(literal) - 2)
    return sf.replace(quoted, sf.lit("''"), sf.lit("'")).try_cast(_KINDS[kind][0])


def read(spark: SparkSession, name: str, text: str) -> Template | None:
    """A template as Spark's parser reads it.

    None if it is not plain, or if it reads ``text``, one of its texts, otherwise.
    """
    if not is_plain(name):
        return None
    pieces = re.split(f"({_MARK})", name)
    kinds = tuple(mark[1] for mark in pieces[1::2])
    condition = pieces[0] + "".join(
        f"`{PLACE.format(place)}`{piece}" for place, piece in enumerate(pieces[2::2])
    )
    parsed, meant = _parse(spark, condition), _parse(spark, text)
    if parsed is None or meant is None or not _agree(parsed, meant):
        return None
    branches = [_branch(alternative) for alternative in _flatten(parsed, "Or")]
    useful = len(branches) <= BRANCHES_MAX and all(
        branch.keys or branch.ranges or branch.like for branch in branches
    )
    return Template(name, condition, kinds, tuple(branches) if useful else ())


def _parse(spark: SparkSession, text: str) -> _Node | None:
    """The tree that Spark's parser makes of a text. None if it does not parse."""
    try:
        plain = spark._jsparkSession.sessionState().sqlParser().parseExpression(text).toJSON()
    except (
        Exception
        # The parser's errors come in many classes. The evaluation of the text raises them again.
    ):
        return None
    nodes = iter(msgspec.json.decode(plain))
    return _tree(nodes)


def _tree(nodes: Iterator[dict[str, Any]]) -> _Node:
    """Build the tree from its nodes. A node comes before its children."""
    node = next(nodes)
    kind = node["class"].rsplit(".", 1)[-1]
    # These parts distinguish a node from others of its class: names, values, the escape character.
    # The places of its children do not.
    apart = {
        k: v for k, v in node.items() if k not in ("class", "num-children") and not _is_link(v)
    }
    if kind == "Literal":
        apart.pop("dataType", None)
    children = tuple(_tree(nodes) for _ in range(node["num-children"]))
    if kind == "UnresolvedAttribute":
        return _Node(kind, str(node["nameParts"]), children)
    return _Node(kind, msgspec.json.encode(apart, order="deterministic").decode(), children)


def _is_link(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _agree(template: _Node, text: _Node) -> bool:
    """Whether the text is the template with a literal in each place."""
    if _place(template) is not None:
        return text.kind == "Literal" and '"value":null' not in text.parts
    if template.kind != text.kind or len(template.children) != len(text.children):
        return False
    if template.kind == "UnresolvedFunction":
        same = _without_arguments(template.parts) == _without_arguments(text.parts)
    else:
        same = template.kind == "In" or template.parts == text.parts
    return same and all(_agree(a, b) for a, b in zip(template.children, text.children, strict=True))


def _without_arguments(parts: str) -> str:
    """The parts of a function without its arguments, which are its children."""
    return re.sub(r'"arguments":\[[^\]]*\]', "", parts)


def _place(node: _Node) -> Place | None:
    if (
        node.kind in ("UnaryMinus", "UnaryPositive")
        and (inner := _place(node.children[0])) is not None
    ):
        return Place(inner.number, inner.minus != (node.kind == "UnaryMinus"))
    if node.kind == "UnresolvedAttribute" and (
        found := re.fullmatch(r"\[gossamer\.(\d+)\]", node.parts)
    ):
        return Place(int(found[1]))
    return None


def _attribute(node: _Node) -> str | None:
    """An attribute as SQL, or None for any other node."""
    if node.kind != "UnresolvedAttribute" or _place(node) is not None:
        return None
    parts = node.parts[1:-1].split(", ")
    return (
        ".".join(f"`{part}`" for part in parts)
        if all(re.fullmatch(r"\w+", part) for part in parts)
        else None
    )


def _flatten(node: _Node, kind: str) -> list[_Node]:
    return (
        [leaf for child in node.children for leaf in _flatten(child, kind)]
        if node.kind == kind
        else [node]
    )


def _branch(node: _Node) -> Branch:
    equal: list[tuple[str, Place]] = []
    member: tuple[str, tuple[Place, ...]] | None = None
    ranges: dict[str, Range] = {}
    like: tuple[str, Place] | None = None

    def bound(attribute: str, low: Place | None, high: Place | None) -> None:
        known = ranges.get(attribute, Range(attribute))
        ranges[attribute] = Range(attribute, known.low or low, known.high or high)

    for part in _flatten(node, "And"):
        attribute, places = _compared(part)
        if attribute is None or not places:
            continue
        swapped = bool(part.children) and _place(part.children[0]) is not None
        if part.kind == "EqualTo":
            equal.append((attribute, places[0]))
        elif part.kind == "In" and member is None:
            member = (attribute, tuple(places))
        elif part.kind == "Like" and like is None and not swapped:
            like = (attribute, places[0])
        elif part.kind == "UnresolvedFunction" and '"[between]"' in part.parts and len(places) == 2:
            bound(attribute, places[0], places[1])
        elif part.kind in (_BELOW if swapped else _ABOVE):
            bound(attribute, places[0], None)
        elif part.kind in (_ABOVE if swapped else _BELOW):
            bound(attribute, None, places[0])
    return Branch(tuple(equal), member, tuple(ranges.values()), like, _whole(node))


def _whole(node: _Node) -> tuple[Comparison, ...] | None:
    """The comparisons that make up a condition. None if some part of it is not a comparison."""
    found: list[Comparison] = []
    for part in _flatten(node, "And"):
        attribute, places = _compared(part)
        if attribute is None or not places:
            return None
        if part.kind in _SIGNS and len(places) == 1:
            swapped = _place(part.children[0]) is not None
            sign = _SIGNS[part.kind]
            found.append(Comparison(attribute, _TURNED[sign] if swapped else sign, places[0]))
        elif part.kind == "UnresolvedFunction" and '"[between]"' in part.parts and len(places) == 2:
            found += [
                Comparison(attribute, ">=", places[0]),
                Comparison(attribute, "<=", places[1]),
            ]
        else:
            return None
    return tuple(found)


def _compared(node: _Node) -> tuple[str | None, Sequence[Place]]:
    """The attribute and the places of a comparison between them, or nothing for a comparison of
    other parts.
    """
    attributes = [name for child in node.children if (name := _attribute(child)) is not None]
    places = [place for child in node.children if (place := _place(child)) is not None]
    whole = len(attributes) == 1 and len(attributes) + len(places) == len(node.children)
    first = not node.children or _attribute(node.children[0]) is not None
    return (attributes[0], places) if whole and (first or len(places) == 1) else (None, ())
