"""Filters: one text, two engines. The text of a Spark SQL WHERE clause, and what it says about an event, here and in Spark.

    schema      Spark DDL to typed attributes          rows      mappings to rows and back, generated per schema
    lex, parse  text to a tree in normal form          fit       literals to their attribute's type
    tree        the eight kinds of nodes, their keys   pattern   LIKE and RLIKE, in linear time
    match       tree to a Python function              text      tree to canonical text
    order       values to bytes that sort alike        filter    Filter: all of it behind one class
    model       limits, errors, Event                  box       conjunctions as sets of values
    cover       what covers what, and merging          language  sets of strings with patterns in them
    place       classes, placements, event keys        index     one event or many against many filters (needs NumPy)
    plain       events from JSON

docs/filters.md is the language's reference.
"""

from gossamer.filters.filter import Filter, merge
from gossamer.filters.model import Event, EventError, FilterError, SchemaError
from gossamer.filters.place import Class, Placement, event_keys
from gossamer.filters.plain import event_of, from_plain
from gossamer.filters.schema import Schema, Type

__all__ = [
    "Class",
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "Placement",
    "Schema",
    "SchemaError",
    "Type",
    "event_keys",
    "event_of",
    "from_plain",
    "merge",
]
