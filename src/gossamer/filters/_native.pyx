# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The loops that every event passes through, compiled.

They go from a mapping to its row, from bytes to rows, and from rows to events.
docs/decisions/0020-compiled-loops.md gives the reasons.

Nothing here decides anything that Python does not decide as well. Each function takes values
that have exactly the right type, which nearly all have. It gives the rest back (None) to the Python
version beside it, which converts, pads or explains the error. So the two can differ only in the
values that they accept, and tests/filters/test_native.py holds them together. Bytes from a peer are
read with every length checked before it is used.

schema.py, packed.py and loops.py use this module. hatch_build.py builds it where there is a C
compiler.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport (
    PyDict_CheckExact,
    PyDict_GetItemWithError,
    PyDict_New,
    PyDict_Next,
    PyDict_SetItem,
    PyDict_Size,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact, PyFloat_FromDouble
from cpython.list cimport (
    PyList_Append,
    PyList_GET_ITEM,
    PyList_GET_SIZE,
    PyList_New,
    PyList_SET_ITEM,
)
from cpython.long cimport PyLong_CheckExact, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.set cimport PySet_Contains
from cpython.tuple cimport (
    PyTuple_CheckExact,
    PyTuple_GET_ITEM,
    PyTuple_GET_SIZE,
    PyTuple_New,
    PyTuple_SET_ITEM,
)
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    UINT32_MAX,
    int8_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
    uintptr_t,
)
from libc.string cimport memcmp, memcpy, memset

import sys
from datetime import UTC, date, datetime

cdef extern from "Python.h":
    int PyBool_Check(object)
    int PyUnicode_CheckExact(object)
    int PyUnicode_KIND(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    void PyObject_GC_UnTrack(void*)

cdef enum:
    STRING, BINARY, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, TIMESTAMP, DATE
    # The most attributes of a schema (model.ATTRIBUTES_MAX).
    WIDTH_MAX = 256
    # The most bytes of a text that is remembered.
    CACHED_MAX = 48
    # A power of two.
    CACHE_SLOTS = 2048
    WHERE_MAX = 16
    TESTS_MAX = 16

# The kinds of tests, as in loops.py.
cdef enum:
    RANGE, AMONG, NOT_AMONG, IS_NULL, NOT_NULL

# It counts the changes of the interface to loops.py. An extension of another version is not used.
VERSION = 5

KINDS = {
    "STRING": STRING,
    "BINARY": BINARY,
    "BOOLEAN": BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "TIMESTAMP": TIMESTAMP,
    "DATE": DATE,
}

cdef int64_t[4] LEAST = [-128, -32768, -2147483648, INT64_MIN]
cdef int64_t[4] MOST = [127, 32767, 2147483647, INT64_MAX]


# Texts from peers. The same few texts come again and again, and a known text need not be decoded.


cdef struct Cached:
    uint64_t hash
    PyObject* text
    uint8_t size
    uint8_t[CACHED_MAX] data

cdef Cached[CACHE_SLOTS] cache


cdef inline uint64_t hashed(const uint8_t* at, Py_ssize_t size) noexcept:
    cdef uint64_t mixed = <uint64_t>size, word
    while size > 0:
        word = 0
        memcpy(&word, at, 8 if size >= 8 else size)
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15ULL
        mixed ^= mixed >> 32
        at += 8
        size -= 8
    return mixed


cdef inline object text_of(const uint8_t* at, Py_ssize_t size):
    """The text in these bytes.

    A UnicodeDecodeError says that they are not a text.
    """
    cdef Cached* slot
    cdef uint64_t mixed
    if size > CACHED_MAX:
        return PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    mixed = hashed(at, size)
    slot = &cache[mixed & (CACHE_SLOTS - 1)]
    if slot.text != NULL and slot.hash == mixed and slot.size == size:
        if memcmp(slot.data, at, size) == 0:
            return <object>slot.text
    text = PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    Py_INCREF(text)
    Py_XDECREF(slot.text)
    slot.text, slot.hash, slot.size = <PyObject*>text, mixed, <uint8_t>size
    memcpy(slot.data, at, size)
    return text


cdef bint is_encodable(object text) noexcept:
    """Whether the text has no lone surrogate."""
    cdef int kind = PyUnicode_KIND(text)
    cdef Py_ssize_t place, size = PyUnicode_GET_LENGTH(text)
    cdef uint16_t* two
    cdef uint32_t* four
    if kind == 2:
        two = <uint16_t*>PyUnicode_DATA(text)
        for place in range(size):
            if two[place] & 0xF800 == 0xD800:
                return False
    elif kind == 4:
        four = <uint32_t*>PyUnicode_DATA(text)
        for place in range(size):
            if four[place] & 0xFFFFF800u == 0xD800u:
                return False
    return True


cdef inline uint64_t big_endian(const uint8_t* at, int size) noexcept:
    cdef uint64_t number = 0
    cdef int place
    for place in range(size):
        number = number << 8 | at[place]
    return number


# Schemas.


cdef class Weighed:
    """Base of an object that is gathered. ``size`` is its estimated number of bytes."""

    cdef public Py_ssize_t size


cdef class Shape:
    """The types of a row of a schema."""

    cdef tuple _names
    cdef object _event
    cdef int _width
    cdef uint8_t[WIDTH_MAX] _kinds
    cdef uint8_t[WIDTH_MAX] _required

    def __init__(self, tuple names not None, types, required, event):
        """``event`` is the type Event, called with (topic, publisher, incarnation, number, values).
        """
        if len(names) > WIDTH_MAX:
            raise ValueError(f"{len(names)} attributes; at most {WIDTH_MAX}")
        # The names are interned as a program's own names are, so that equal ones are mostly
        # identical.
        self._names, self._width, self._event = tuple(map(sys.intern, names)), len(names), event
        for place, (_, kind, must) in enumerate(zip(names, types, required, strict=True)):
            self._kinds[place], self._required[place] = KINDS[kind], must

    cdef bint _fits(self, int place, object value, Py_ssize_t* size) except -1:
        """Whether a value has exactly the right type.

        The weight of a text is added to ``size``.
        """
        cdef int kind = self._kinds[place], over = 0
        cdef long long number
        cdef double wide
        if value is None:
            return not self._required[place]
        if kind == STRING:
            if not PyUnicode_CheckExact(value) or not is_encodable(value):
                return False
            size[0] += PyUnicode_GET_LENGTH(value)
            return True
        if TINYINT <= kind <= BIGINT:
            if not PyLong_CheckExact(value):
                return False
            number = PyLong_AsLongLongAndOverflow(value, &over)
            return not over and LEAST[kind - TINYINT] <= number <= MOST[kind - TINYINT]
        if kind == DOUBLE:
            return PyFloat_CheckExact(value)
        if kind == BOOLEAN:
            return PyBool_Check(value)
        if kind == BINARY:
            if not PyBytes_CheckExact(value):
                return False
            size[0] += PyBytes_GET_SIZE(value)
            return True
        if kind == FLOAT:
            if not PyFloat_CheckExact(value):
                return False
            wide = PyFloat_AS_DOUBLE(value)
            return <double><float>wide == wide or wide != wide
        if kind == TIMESTAMP:
            return type(value) is datetime and value.tzinfo is UTC
        return type(value) is date

    cdef tuple _row(self, object mapping, Py_ssize_t* size):
        """The row of a mapping whose values have exactly the right types, or None."""
        cdef int place, found = 0
        cdef Py_ssize_t at = 0
        # While the mapping has its names in the order of the schema, they need not be looked up.
        cdef bint in_order = True
        cdef PyObject* name
        cdef PyObject* key
        cdef PyObject* known
        cdef tuple row
        if not PyDict_CheckExact(mapping):
            return None
        row = PyTuple_New(self._width)
        for place in range(self._width):
            name = PyTuple_GET_ITEM(self._names, place)
            in_order = in_order and PyDict_Next(mapping, &at, &key, &known) and key == name
            if not in_order:
                known = PyDict_GetItemWithError(mapping, <object>name)
            if known == NULL:
                value = None
            else:
                value = <object>known
                found += 1
            Py_INCREF(value)
            PyTuple_SET_ITEM(row, place, value)
            if not self._fits(place, value, size):
                return None
        if found != PyDict_Size(mapping):
            return None
        # Nothing in a row can refer to the row, so the garbage collector need not examine it.
        PyObject_GC_UnTrack(<void*>row)
        return row

    def rows(self, mappings, slow):
        """The row of each mapping. ``slow`` makes the rows that need conversion."""
        cdef list found = []
        cdef Py_ssize_t size = 0
        for mapping in mappings:
            row = self._row(mapping, &size)
            found.append(slow(mapping) if row is None else row)
        return found

    def lane(
        self,
        Py_ssize_t value_bytes,
        topic,
        Weighed publication not None,
        list rows not None,
        ticket,
        Py_ssize_t most,
        Py_ssize_t most_bytes,
        Py_ssize_t heavy,
    ):
        """See ``rows.make_lane``. Each value weighs ``value_bytes`` beside its text."""
        cdef Lane lane = Lane.__new__(Lane)
        lane._shape, lane._topic, lane._ticket = self, topic, ticket
        lane._publication, lane._rows = publication, rows
        lane._most, lane._most_bytes, lane._heavy = most, most_bytes, heavy
        lane._heads = value_bytes * self._width
        # A call of the method costs less than a call of an object.
        return lane.take

    def decode(self, data):
        """The rows in these bytes.

        None means that they do not fit this schema exactly, or that this node would not write
        them so.
        """
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self._decode(<const uint8_t*>view.buf, view.len)
        except UnicodeDecodeError:
            return None
        finally:
            PyBuffer_Release(&view)

    cdef list _decode(self, const uint8_t* at, Py_ssize_t size):
        cdef const uint8_t* end = at + size
        cdef Py_ssize_t count, number, length
        cdef int place
        cdef list rows
        cdef tuple row
        if not array_of(&at, end, &count):
            return None
        rows = PyList_New(count)
        for number in range(count):
            row = PyTuple_New(self._width)
            Py_INCREF(row)
            PyList_SET_ITEM(rows, number, row)
            if not array_of(&at, end, &length) or length != self._width:
                return None
            for place in range(self._width):
                value = self._value(place, &at, end)
                if value is NotImplemented:
                    return None
                Py_INCREF(value)
                PyTuple_SET_ITEM(row, place, value)
            PyObject_GC_UnTrack(<void*>row)
        return rows if at == end else None

    cdef inline object _value(self, int place, const uint8_t** start, const uint8_t* end):
        """The value of an attribute, or NotImplemented if it is not of its type."""
        cdef const uint8_t* at = start[0]
        cdef int kind = self._kinds[place], tag, bytes = 0
        cdef int64_t number = 0
        cdef uint64_t raw
        cdef Py_ssize_t size
        cdef double wide
        if at >= end:
            return NotImplemented
        tag = at[0]
        at += 1
        if tag == 0xC0:
            start[0] = at
            return NotImplemented if self._required[place] else None
        if kind == STRING or kind == BINARY:
            if kind == STRING and tag & 0xE0 == 0xA0:
                size = tag & 31
            else:
                tag -= 0xD9 if kind == STRING else 0xC4
                if not 0 <= tag <= 2 or end - at < 1 << tag:
                    return NotImplemented
                raw = big_endian(at, 1 << tag)
                at += 1 << tag
                if raw > <uint64_t>(end - at):
                    return NotImplemented
                size = raw
            if size > end - at:
                return NotImplemented
            start[0] = at + size
            if kind == STRING:
                return text_of(at, size)
            return PyBytes_FromStringAndSize(<const char*>at, size)
        if TINYINT <= kind <= BIGINT:
            if tag < 0x80 or tag >= 0xE0:
                number = <int8_t>tag
            elif 0xCC <= tag <= 0xD3:
                bytes = 1 << (tag & 3)
                if end - at < bytes:
                    return NotImplemented
                raw = big_endian(at, bytes)
                at += bytes
                if tag <= 0xCF:
                    if raw >> 63:
                        return NotImplemented
                    number = <int64_t>raw
                else:
                    # This extends the sign.
                    number = <int64_t>(raw << (64 - 8 * bytes)) >> (64 - 8 * bytes)
            else:
                return NotImplemented
            if not LEAST[kind - TINYINT] <= number <= MOST[kind - TINYINT]:
                return NotImplemented
            start[0] = at
            return PyLong_FromLongLong(number)
        if kind == DOUBLE or kind == FLOAT:
            if tag != 0xCB or end - at < 8:
                return NotImplemented
            raw = big_endian(at, 8)
            memcpy(&wide, &raw, 8)
            start[0] = at + 8
            return PyFloat_FromDouble(wide)
        if kind == BOOLEAN and (tag == 0xC2 or tag == 0xC3):
            start[0] = at
            return tag == 0xC3
        # Days and times are left to msgspec.
        return NotImplemented

    def events(self, topic, publisher, incarnation, numbers, list rows not None):
        """An event for each row, or None if the length of a row is not that of the schema."""
        cdef Py_ssize_t at = 0, count = PyList_GET_SIZE(rows)
        cdef int place
        cdef list found = PyList_New(count)
        for number in numbers:
            if at >= count or at >= PyList_GET_SIZE(rows):
                return None
            row = <object>PyList_GET_ITEM(rows, at)
            if not PyTuple_CheckExact(row) or PyTuple_GET_SIZE(row) != self._width:
                return None
            values = PyDict_New()
            for place in range(self._width):
                PyDict_SetItem(
                    values,
                    <object>PyTuple_GET_ITEM(self._names, place),
                    <object>PyTuple_GET_ITEM(row, place),
                )
            event = self._event(topic, publisher, incarnation, number, values)
            Py_INCREF(event)
            PyList_SET_ITEM(found, at, event)
            at += 1
        return found if at == count else None


cdef inline bint array_of(const uint8_t** at, const uint8_t* end, Py_ssize_t* count) noexcept:
    """Reads the number of elements of a msgpack array.

    False means that no array begins here, or that so large a number cannot follow.
    """
    cdef int tag, bytes
    cdef uint64_t many
    if at[0] >= end:
        return False
    tag = at[0][0]
    if tag & 0xF0 == 0x90:
        many = tag & 15
        at[0] += 1
    else:
        bytes = 2 if tag == 0xDC else 4
        if (tag != 0xDC and tag != 0xDD) or end - at[0] <= bytes:
            return False
        many = big_endian(at[0] + 1, bytes)
        at[0] += 1 + bytes
    # Each element takes at least one byte.
    if many > <uint64_t>(end - at[0]):
        return False
    count[0] = many
    return True


cdef class Lane:
    """The short way for one event after the other into an open batch."""

    cdef Shape _shape
    cdef object _topic
    cdef Weighed _publication
    cdef list _rows
    cdef object _ticket
    cdef Py_ssize_t _most, _most_bytes, _heavy, _heads

    def __init__(self):
        raise TypeError("Shape.lane makes them")

    def take(self, topic, event):
        cdef Py_ssize_t size = self._heads, place = PyList_GET_SIZE(self._rows)
        if place >= self._most or (topic is not self._topic and topic != self._topic):
            return None
        row = self._shape._row(event, &size)
        if row is None or size > self._heavy or size + self._publication.size >= self._most_bytes:
            return None
        PyList_Append(self._rows, row)
        self._publication.size += size
        return self._ticket(self._publication, place)


# The compiled forms of the functions in loops.py, which documents them.


cdef struct Test:
    Py_ssize_t place
    int kind
    int64_t least, most
    # Passing keeps them alive.
    PyObject* values


cdef class Passing:
    """Which rows pass all of a few tests.

    ``slow`` judges all rows if a value is not of its attribute's type.
    """

    cdef object _slow
    cdef tuple _given
    cdef int _count
    cdef Test[TESTS_MAX] _tests

    def __cinit__(self, tuple tests not None, slow):
        if len(tests) > TESTS_MAX:
            raise ValueError(f"{len(tests)} tests; at most {TESTS_MAX}")
        self._slow, self._given, self._count = slow, tests, len(tests)
        for number, (place, kind, least, most, values) in enumerate(tests):
            if place < 0 or not RANGE <= kind <= NOT_NULL or type(values) is not frozenset:
                raise ValueError(f"no such test: {tests[number]!r}")
            self._tests[number] = Test(place, kind, least, most, <PyObject*>values)

    def __call__(self, rows):
        cdef list found = [], given
        cdef Py_ssize_t place
        cdef int passes
        if type(rows) is not list:
            return self._slow(rows)
        given = rows
        for place in range(PyList_GET_SIZE(given)):
            passes = self._passes(PyList_GET_ITEM(given, place))
            if passes < 0:
                return self._slow(rows)
            if passes:
                found.append(place)
        return found

    cdef int _passes(self, PyObject* row) except -2:
        """1, 0, or -1 if this test cannot judge the row.

        No code of others runs here, so the rows do not change.
        """
        cdef int number, over = 0
        cdef Test* test
        cdef PyObject* value
        cdef int64_t whole
        if not PyTuple_CheckExact(<object>row):
            return -1
        for number in range(self._count):
            test = &self._tests[number]
            if test.place >= PyTuple_GET_SIZE(<object>row):
                return -1
            value = PyTuple_GET_ITEM(<object>row, test.place)
            if test.kind >= IS_NULL:
                if (<object>value is None) != (test.kind == IS_NULL):
                    return False
            elif <object>value is None:
                return False
            elif test.kind == RANGE:
                if not PyLong_CheckExact(<object>value):
                    return -1
                whole = PyLong_AsLongLongAndOverflow(<object>value, &over)
                if over:
                    return -1
                if not test.least <= whole <= test.most:
                    return False
            else:
                if not PyUnicode_CheckExact(<object>value) and not PyLong_CheckExact(<object>value):
                    return -1
                if PySet_Contains(<object>test.values, <object>value) != (test.kind == AMONG):
                    return False
        return True


def shares(list rows not None, tuple where not None, dict known not None, answer, int takers):
    cdef list found = [[] for _ in range(takers)]
    cdef Py_ssize_t place = 0, at, width = PyTuple_GET_SIZE(where)
    cdef Py_ssize_t[WHERE_MAX] wanted
    cdef PyObject* met
    if not 0 < width <= WHERE_MAX:
        raise ValueError(f"values at {width} places; from 1 to {WHERE_MAX} are possible")
    for at in range(width):
        wanted[at] = where[at]
        if wanted[at] < 0:
            raise IndexError("places are counted from the first")
        # All rows are checked before the first call of ``answer``.
        for place in range(PyList_GET_SIZE(rows)):
            has(<object>PyList_GET_ITEM(rows, place), wanted[at])
    place = 0
    while place < PyList_GET_SIZE(rows):
        row = <object>PyList_GET_ITEM(rows, place)
        for at in range(width):
            has(row, wanted[at])
        if width == 1:
            values = <object>PyTuple_GET_ITEM(row, wanted[0])
        else:
            values = PyTuple_New(width)
            for at in range(width):
                value = <object>PyTuple_GET_ITEM(row, wanted[at])
                Py_INCREF(value)
                PyTuple_SET_ITEM(values, at, value)
        met = PyDict_GetItemWithError(known, values)
        if met != NULL:
            these = <object>met
        else:
            these = answer(row)
            known[values] = these
        number = None
        for taker in <tuple?>these:
            number = place if number is None else number
            (<list>found[taker]).append(number)
        place += 1
    return found


cdef inline int has(object row, Py_ssize_t place) except -1:
    if not PyTuple_CheckExact(row) or place >= PyTuple_GET_SIZE(row):
        raise IndexError("a row of a shorter schema")
    return 0


cdef class Cutter:
    cdef bytes _data
    # The number of rows, or -1 if the bytes are not a list of rows.
    cdef Py_ssize_t _count
    # The places where each row begins, and where the last one ends.
    cdef uint32_t* _at

    def __cinit__(self, bytes data not None):
        cdef const uint8_t* first = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef const uint8_t* end = first + PyBytes_GET_SIZE(data)
        cdef const uint8_t* at = first
        cdef Py_ssize_t count, place
        self._data, self._count, self._at = data, -1, NULL
        if <uint64_t>PyBytes_GET_SIZE(data) > UINT32_MAX or not array_of(&at, end, &count):
            return
        self._at = <uint32_t*>PyMem_Malloc((count + 1) * sizeof(uint32_t))
        if self._at == NULL:
            raise MemoryError
        for place in range(count):
            self._at[place] = at - first
            if not skip(&at, end, 0):
                return
        self._at[count] = at - first
        self._count = count

    def __dealloc__(self):
        PyMem_Free(self._at)

    def cut(self, places):
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(self._data)
        cdef list several = list(places)
        cdef Py_ssize_t size = 0, each, place, number, wanted = PyList_GET_SIZE(several)
        cdef bytes whole
        cdef uint8_t* into
        cdef uint8_t* start
        if self._count < 0 or wanted >= 1 << 16:
            return None
        for number in range(wanted):
            place = <object>PyList_GET_ITEM(several, number)
            if not 0 <= place < self._count:
                return None
            size += self._at[place + 1] - self._at[place]
        whole = PyBytes_FromStringAndSize(NULL, size + (1 if wanted < 16 else 3))
        start = into = <uint8_t*>PyBytes_AS_STRING(whole)
        if wanted < 16:
            into[0] = 0x90 | wanted
            into += 1
        else:
            into[0], into[1], into[2] = 0xDC, wanted >> 8, wanted & 255
            into += 3
        for number in range(wanted):
            place = <object>PyList_GET_ITEM(several, number)
            each = self._at[place + 1] - self._at[place]
            memcpy(into, data + self._at[place], each)
            into += each
        assert into - start == PyBytes_GET_SIZE(whole)
        return whole


cdef bint skip(const uint8_t** at, const uint8_t* end, int depth) noexcept:
    """Goes past one value of msgpack.

    False means that there is none, or that no row holds such a value.
    """
    cdef Py_ssize_t count, each
    cdef uint64_t size
    cdef int tag
    if at[0] >= end or depth > 2:
        return False
    tag = at[0][0]
    if tag & 0xF0 == 0x90 or tag == 0xDC or tag == 0xDD:
        if not array_of(at, end, &count):
            return False
        for each in range(count):
            if not skip(at, end, depth + 1):
                return False
        return True
    at[0] += 1
    if tag < 0x80 or tag >= 0xE0 or tag == 0xC0 or tag == 0xC2 or tag == 0xC3:
        return True
    if tag & 0xE0 == 0xA0:
        size = tag & 31
    elif 0xCC <= tag <= 0xD3:
        size = 1 << (tag & 3)
    elif tag == 0xCA or tag == 0xCB:
        size = 4 if tag == 0xCA else 8
    # Their length comes before them. Before C7 .. C9 comes a type, too.
    elif 0xD9 <= tag <= 0xDB or 0xC4 <= tag <= 0xC9:
        each = 1 << ((tag - 0xD9) if tag >= 0xD9 else (tag - 0xC4) % 3)
        if end - at[0] < each:
            return False
        size = big_endian(at[0], each) + (1 if 0xC7 <= tag <= 0xC9 else 0)
        at[0] += each
    elif 0xD4 <= tag <= 0xD8:
        size = 1 + (1 << (tag - 0xD4))
    else:
        return False
    if size > <uint64_t>(end - at[0]):
        return False
    at[0] += size
    return True


def tally(list total not None, places, tuple matched not None):
    cdef Py_ssize_t at = 0, last = PyTuple_GET_SIZE(matched) - 1
    if last and last + 1 != len(places):
        raise ValueError("as many counts as places, or one")
    for place in places:
        if at > last:
            raise ValueError("more places than counts")
        total[place] = total[place] + <object>PyTuple_GET_ITEM(matched, at)
        at += last > 0


def ascends(tuple places not None):
    cdef Py_ssize_t at
    cdef int64_t before = -1, place
    for at in range(PyTuple_GET_SIZE(places)):
        place = <object>PyTuple_GET_ITEM(places, at)
        if place <= before:
            return False
        before = place
    return True


def shifted(places, int64_t by):
    cdef int64_t place
    return [place + by for place in places]


include "_columns.pxi"
