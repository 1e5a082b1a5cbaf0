"""Filters: one text, two engines. The text of a Spark SQL WHERE clause, and what it says about an event, here and in Spark.

    schema      Spark DDL to typed attributes          rows      mappings to rows and back, generated per schema
    lex, parse  text to a tree in normal form          fit       literals to their attribute's type
    tree        the eight kinds of nodes, their keys   pattern   LIKE and RLIKE, in linear time
    match       tree to a Python function              text      tree to canonical text
    order       values to bytes that sort alike        filter    Filter: all of it behind one class
    model       limits, errors, Event

docs/filters.md is the language's reference.
"""

from gossamer.filters.filter import Filter
from gossamer.filters.model import Event, EventError, FilterError, SchemaError
from gossamer.filters.schema import Schema, Type

__all__ = ["Event", "EventError", "Filter", "FilterError", "Schema", "SchemaError", "Type"]
