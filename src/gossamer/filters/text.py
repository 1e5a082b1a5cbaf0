"""From a tree to its canonical text.

The text parses back to the same tree here, and it means the same to Spark.
"""

from __future__ import annotations

import re
from datetime import date, datetime

from gossamer.filters.schema import Schema, quote
from gossamer.filters.tree import And, Compare, Const, In, Like, Node, Null, Or, Pair, Rlike, Value

# Control characters, quotes and backslashes, and characters that are invisible or break a line on a
# screen.
_ESCAPED = re.compile(
    "[\\x00-\\x1f\\x7f-\\xa0\\xad'\\\\\u1680\u180e\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3000\ufeff]"
)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}


def write(node: Node, schema: Schema) -> str:
    if isinstance(node, And):
        return " AND ".join(_inner(term, schema) for term in node.terms)
    if isinstance(node, Or):
        return " OR ".join(_inner(term, schema) for term in node.terms)
    if isinstance(node, Const):
        return "TRUE" if node.value else "FALSE"
    if isinstance(node, Pair):
        return f"{_name(node.left, schema)} {node.op} {_name(node.right, schema)}"
    return f"{_name(node.attribute, schema)} {_rest(node)}"


def _inner(node: Node, schema: Schema) -> str:
    text = write(node, schema)
    return f"({text})" if isinstance(node, And | Or) else text


def _name(attribute: int, schema: Schema) -> str:
    return quote(schema.attributes[attribute].path)


def _rest(node: Compare | In | Like | Rlike | Null) -> str:
    no = "NOT " if not isinstance(node, Compare) and node.negated else ""
    if isinstance(node, Compare):
        return f"{node.op} {literal(node.value)}"
    if isinstance(node, In):
        values = [literal(value) for value in node.values]
        if len(values) == 1:
            return f"{'<>' if no else '='} {values[0]}"
        return f"{no}IN ({', '.join(values)})"
    if isinstance(node, Null):
        return f"IS {no}NULL"
    return f"{no}{'LIKE' if isinstance(node, Like) else 'RLIKE'} {_string(node.pattern)}"


def literal(value: Value) -> str:
    """A value as SQL text."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # A FLOAT is written as a DOUBLE too, because each FLOAT is one.
        return repr(value).upper() + "D"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}Z'"
    assert isinstance(value, date)
    return f"DATE '{value.isoformat()}'"


def _string(value: str) -> str:
    return "'" + _ESCAPED.sub(_escape, value) + "'"


def _escape(match: re.Match[str]) -> str:
    return _NAMED.get(match[0]) or f"\\u{ord(match[0]):04x}"
