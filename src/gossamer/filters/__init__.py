"""Filters: the text of a Spark SQL WHERE clause, and the verdict that it gives on an event.

The fabric and Spark give the same verdict on every event.

    schema      reads Spark DDL into typed attributes
    rows        turns mappings into rows and back, with code generated for each schema
    lex, parse  read a text into a tree in normal form
    fit         brings literals to the type of their attribute
    tree        the eight kinds of nodes, and their keys
    pattern     LIKE and RLIKE, in linear time
    match       turns a tree into a Python function
    text        turns a tree into its canonical text
    order       turns values into bytes that sort as the values do
    filter      Filter, the one class in front of all of this
    model       limits, errors, and Event
    box         conjunctions as sets of values
    cover       decides whether one filter covers another, and merges filters
    language    sets of strings that contain patterns
    place       classes, placements, and keys of events
    index       one event, or many, against many filters (needs NumPy)
    plain       events from JSON

docs/filters.md is the reference of the language.
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
