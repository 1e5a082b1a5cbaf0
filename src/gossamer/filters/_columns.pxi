# The part of _native.pyx for columns.
#
# It keeps memory that is used again, copies record batches into one, checks texts of peers, and
# finds the columns of large messages where they lie. filters/packed.py and node/wire.py use it.
# Each has another way where nothing is compiled.

cdef extern from "Python.h":
    int PyBuffer_FillInfo(Py_buffer*, object, void*, Py_ssize_t, int, int) except -1

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #define HUGE_STEP ((size_t)2 << 20)
    #if defined(_MSC_VER)
    #include <malloc.h>
    #define slab_new(size) _aligned_malloc((size), 64)
    #define slab_free(data) _aligned_free(data)
    static void* map_memory(int file, size_t size, int writable) { return NULL; }
    static void unmap_memory(void* data, size_t size) {}
    static void make_huge(void* data) {}
    static void after_stamps(void) {}
    static void before_stamps(void) {}
    #else
    #include <stdlib.h>
    #include <sys/mman.h>
    static void* slab_new(size_t size) {
        void* data = NULL;
        if (posix_memalign(&data, size < HUGE_STEP ? 64 : HUGE_STEP, size) != 0) return NULL;
    #ifdef MADV_HUGEPAGE
        if (size >= HUGE_STEP) madvise(data, size, MADV_HUGEPAGE);
    #endif
        return data;
    }
    #define slab_free(data) free(data)
    /* Finds a place where large pages can lie, because mmap alone may give any address. */
    static void* map_memory(int file, size_t size, int writable) {
    #if defined(MAP_ANONYMOUS) && defined(MAP_NORESERVE)
        size_t room = size + HUGE_STEP, before;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        uint8_t* data = (uint8_t*)mmap(NULL, room, PROT_NONE, flags, -1, 0);
        void* found;
        if (data == MAP_FAILED) return NULL;
        before = -(uintptr_t)data & (HUGE_STEP - 1);
        found = mmap(data + before, size, rights, MAP_SHARED | MAP_FIXED, file, 0);
        if (found == MAP_FAILED) {
            munmap(data, room);
            return NULL;
        }
        if (before) munmap(data, before);
        if (room - before > size) munmap(data + before + size, room - before - size);
        return data + before;
    #else
        return NULL;
    #endif
    }
    static void unmap_memory(void* data, size_t size) { munmap(data, size); }
    /* A writer stamps before it writes, and a reader reads the stamps last.
       The fences keep a processor from changing that order. */
    static void after_stamps(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    static void before_stamps(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    /* Makes one large page of 512 small ones, each of which would cost a fault of its own.
       Where that is impossible, nothing happens. */
    static void make_huge(void* data) {
    #if defined(__linux__)
    #ifndef MADV_COLLAPSE
    #define MADV_COLLAPSE 25
    #endif
        *(volatile uint8_t*)data = *(volatile uint8_t*)data;
        madvise(data, HUGE_STEP, MADV_COLLAPSE);
    #endif
    }
    #endif
    """
    size_t HUGE_STEP
    void* slab_new(size_t) nogil
    void slab_free(void*) nogil
    void* map_memory(int, size_t, int) nogil
    void unmap_memory(void*, size_t) nogil
    void make_huge(void*) nogil
    void after_stamps() nogil
    void before_stamps() nogil

cdef enum:
    # Sizes of memory that is kept are multiples of this.
    SLAB_STEP = 1 << 18
    # The largest of them is a frame and a little more (wire.FRAME_MAX).
    SLAB_KINDS = 34
    # The most spares of each size.
    SLAB_SPARES = 16
    # The most steps of all spares together: 16 MiB.
    SLAB_KEPT = 64
    ALIGNED = 64
    COLUMNS_MAX = 256
    COLUMNS_MARK = 0xFF

    # Steps of memory that other processes see: 256 MiB.
    LENT_STEPS_MAX = 1024

cdef uint64_t HIGH_BITS = 0x8080808080808080ULL

cdef void* spares[SLAB_KINDS][SLAB_SPARES]
cdef int[SLAB_KINDS] spare_counts
cdef int spare_steps = 0


# Memory that other processes of this host may read (net/memory.py). It begins with a table of
# stamps, one for each step. The steps follow.
# The first step, or NULL if no memory is lent.
cdef uint8_t* lent_data = NULL
# `lent_huge` counts the large pages so far.
cdef int lent_steps = 0, lending = 0, lent_huge = 0
cdef bint[LENT_STEPS_MAX] lent_out
cdef uint64_t lent_stamp = 0
# How often there was no room.
cdef long long lent_missed = 0


def lend(int file, Py_ssize_t size, uint64_t stamp):
    """From now on published columns are gathered in this file's memory.

    Its first step holds the stamps. Stamps begin after ``stamp``. With -1 nothing is lent any
    longer. Memory that was lent before stays mapped for good, because a reader may use it.
    """
    global lent_data, lent_steps, lent_huge, lent_stamp, lending
    cdef uint8_t* data
    lent_data = NULL
    if file < 0:
        return
    if size < 2 * SLAB_STEP or size > <Py_ssize_t>LENT_STEPS_MAX * SLAB_STEP or size % HUGE_STEP:
        raise ValueError(f"memory of {size} bytes")
    data = <uint8_t*>map_memory(file, size, True)
    if data == NULL:
        raise OSError("this memory cannot be mapped")
    memset(lent_out, 0, sizeof(lent_out))
    lending, lent_huge, lent_steps = lending + 1, 0, <int>(size // SLAB_STEP) - 1
    lent_data, lent_stamp = data + SLAB_STEP, stamp


def missed():
    """How often columns were gathered elsewhere because the lent memory had no room."""
    return lent_missed


def fence():
    """Keeps the processor from moving a read across this call."""
    before_stamps()


cdef class Mapped:
    """The memory of another process, to read."""

    cdef uint8_t* _data
    cdef Py_ssize_t _size

    def __cinit__(self, int file, Py_ssize_t size):
        self._data, self._size = <uint8_t*>map_memory(file, size, False) if size > 0 else NULL, size
        if self._data == NULL:
            raise OSError("this memory cannot be mapped")

    def __dealloc__(self):
        if self._data != NULL:
            unmap_memory(self._data, self._size)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._data, self._size, 1, flags)


cdef uint8_t* borrow(int steps) noexcept:
    """Takes ``steps`` steps in a row of the lent memory, under a new stamp.

    NULL means that there are not enough in a row. It takes the first that are free, because
    memory that was never used costs more than all the work on it.
    """
    global lent_stamp, lent_huge
    cdef int free = 0, at, step
    cdef uint64_t* stamps
    if lent_data == NULL or not 0 < steps <= lent_steps:
        return NULL
    for at in range(lent_steps):
        free = 0 if lent_out[at] else free + 1
        if free == steps:
            stamps = <uint64_t*>(lent_data - SLAB_STEP)
            lent_stamp += 1
            for step in range(at + 1 - steps, at + 1):
                lent_out[step] = True
                # The stamp changes before anything is written there. So a reader of the old
                # contents notices it.
                stamps[step] = lent_stamp
            after_stamps()
            # This part was never used so far.
            while lent_huge * HUGE_STEP < <size_t>(at + 2) * SLAB_STEP:
                make_huge(lent_data - SLAB_STEP + lent_huge * HUGE_STEP)
                lent_huge += 1
            return lent_data + <Py_ssize_t>(at + 1 - steps) * SLAB_STEP
    return NULL


cdef class Slab:
    """Memory for a large message, aligned as columns need it.

    It is not cleared, and it is used again when nothing refers to it any more. Fresh memory
    costs a page fault for every 4 KiB, which is more than filling it. With ``lent`` other processes
    may see it.
    """

    cdef uint8_t* _data
    cdef Py_ssize_t _size
    cdef int _steps
    # The lending that it is part of. 0: others do not see it.
    cdef int _lending
    cdef uint64_t _stamp

    def __cinit__(self, Py_ssize_t size, bint lent=False):
        global spare_steps, lent_missed
        if size < 0 or size > <Py_ssize_t>SLAB_STEP * (SLAB_KINDS - 1):
            raise ValueError(f"memory of {size} bytes")
        self._size, self._steps = size, <int>((size + SLAB_STEP - 1) // SLAB_STEP)
        if lent:
            self._data = borrow(self._steps)
            if self._data != NULL:
                self._lending, self._stamp = lending, lent_stamp
                return
            lent_missed += lent_data != NULL and self._steps > 0
        if spare_counts[self._steps]:
            spare_counts[self._steps] -= 1
            spare_steps -= self._steps
            self._data = <uint8_t*>spares[self._steps][spare_counts[self._steps]]
        else:
            self._data = <uint8_t*>slab_new(<size_t>self._steps * SLAB_STEP or ALIGNED)
        if self._data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        global spare_steps
        cdef int first, at
        if self._data == NULL:
            return
        if self._lending:
            if lent_data != NULL and self._lending == lending:
                first = <int>((self._data - lent_data) // SLAB_STEP)
                for at in range(first, first + self._steps):
                    lent_out[at] = False
        elif spare_counts[self._steps] < SLAB_SPARES and spare_steps + self._steps <= SLAB_KEPT:
            spares[self._steps][spare_counts[self._steps]] = self._data
            spare_counts[self._steps] += 1
            spare_steps += self._steps
        else:
            slab_free(self._data)

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._data, self._size, 0, flags)


def place(data):
    """Where a message's bytes lie in the lent memory, and under which stamp.

    None means that they lie elsewhere.
    """
    cdef Slab slab
    cdef Py_buffer view
    cdef Py_ssize_t at
    found = data.obj if isinstance(data, memoryview) else data
    if type(found) is not Slab:
        return None
    slab = found
    if lent_data == NULL or slab._lending != lending:
        return None
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    at = <uint8_t*>view.buf - lent_data
    PyBuffer_Release(&view)
    return SLAB_STEP + at, slab._stamp


# Record batches as they are published, copied one behind the other.


# This is Arrow's C data interface.
cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data


cdef inline int64_t read64(const uint8_t* at) noexcept:
    cdef int64_t number
    memcpy(&number, at, 8)
    return number


cdef inline void write64(uint8_t* at, int64_t number) noexcept:
    memcpy(at, &number, 8)


cdef inline void write32(uint8_t* at, int32_t number) noexcept:
    memcpy(at, &number, 4)


cdef inline int32_t read32(const uint8_t* at) noexcept:
    cdef int32_t number
    memcpy(&number, at, 4)
    return number


cdef inline uint16_t read16(const uint8_t* at) noexcept:
    cdef uint16_t number
    memcpy(&number, at, 2)
    return number


cdef Py_ssize_t field(
    const uint8_t* data, Py_ssize_t end, Py_ssize_t table, int number, int size
) noexcept:
    """The place of a field of this size in a flatbuffer's table; 0 if there is none."""
    cdef Py_ssize_t vtable, slot, at
    if table < 8 or table + 4 > end:
        return 0
    vtable = table - read32(data + table)
    slot = vtable + 4 + 2 * number
    if vtable < 8 or slot + 2 > end or slot + 2 > vtable + read16(data + vtable):
        return 0
    at = read16(data + slot)
    at = table + at if at else 0
    return at if at and at + size <= end else 0


cdef Py_ssize_t pointed(const uint8_t* data, Py_ssize_t end, Py_ssize_t at) noexcept:
    cdef int64_t to = at + <int64_t><uint32_t>read32(data + at) if at else 0
    return <Py_ssize_t>to if 8 <= to <= end - 4 else 0


cdef inline int64_t padded(int64_t size) noexcept:
    return (size + 7) & ~<int64_t>7


cdef class Gathering:
    """Record batches of one schema, each copied once to its place in a single batch."""

    cdef bytes _head, _widths
    # The places of its numbers in the head.
    cdef Py_ssize_t _length_at, _nodes_at, _buffers_at, _body_length_at
    cdef int _columns, _parts
    cdef int64_t _rows, _most_rows, _most_bytes, _copies_max
    # The starts of the parts. A column has one part, or one of offsets and one of bytes.
    cdef int64_t[2 * COLUMNS_MAX] _start
    cdef int64_t[2 * COLUMNS_MAX] _room
    cdef int64_t[2 * COLUMNS_MAX] _used
    cdef Slab _slab

    def __init__(
        self,
        bytes head not None,
        bytes widths not None,
        int64_t most_rows,
        int64_t most_bytes,
        int64_t copies_max,
    ):
        """``head`` is the beginning of a record batch of this schema as an IPC message.

        It is everything before the values, as pyarrow writes it. ``widths`` has the bytes of a
        value for each column, and 0 if its values differ in length.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(head)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(head), root, batch, at
        cdef int column, buffers = 0
        self._head, self._widths, self._columns, self._rows = head, widths, <int>len(widths), 0
        self._most_rows, self._most_bytes, self._copies_max = most_rows, most_bytes, copies_max
        if not 0 < self._columns <= COLUMNS_MAX or end < 16 or end & 7:
            raise ValueError("columns that cannot be gathered")
        if most_rows < 1 or not 0 < most_bytes <= 0x3FFFFFFF:
            raise ValueError("columns that cannot be gathered")
        self._parts = 0
        for column in range(self._columns):
            buffers += 2 if widths[column] else 3
            self._parts += 1 if widths[column] else 2
        root = pointed(data, end, 8)
        batch = pointed(data, end, field(data, end, root, 2, 4))
        self._body_length_at = field(data, end, root, 3, 8)
        self._length_at = field(data, end, batch, 0, 8)
        at = pointed(data, end, field(data, end, batch, 1, 4))
        if not at or read32(data + at) != self._columns or at + 4 + 16 * self._columns > end:
            raise ValueError("a head of other columns")
        self._nodes_at = at + 4
        at = pointed(data, end, field(data, end, batch, 2, 4))
        if not at or read32(data + at) != buffers or at + 4 + 16 * buffers > end:
            raise ValueError("a head of other columns")
        self._buffers_at = at + 4
        if not self._body_length_at or not self._length_at:
            raise ValueError("a head without its numbers")

    def add(self, batch):
        """Copies a record batch of the schema and returns its number of bytes.

        0 means that it holds nulls, or that there is no room for it.
        """
        cdef ArrowArray array
        array.release = NULL
        batch._export_to_c(<uintptr_t>&array)
        try:
            return self._add(&array)
        finally:
            if array.release != NULL:
                array.release(&array)

    cdef int64_t _add(self, ArrowArray* batch) except -1:
        cdef int64_t rows = batch.length, size = 0, each, base, row
        cdef int64_t[2 * COLUMNS_MAX] sizes
        cdef int column, part = 0, wrong
        cdef uint8_t width
        cdef ArrowArray* child
        cdef const int32_t* offsets
        cdef int32_t* ends
        cdef uint8_t* into
        if batch.n_children != self._columns or rows < 1 or batch.offset:
            return 0
        if rows > self._most_rows - self._rows:
            return 0
        for column in range(self._columns):
            child, width = batch.children[column], self._widths[column]
            if child.length != rows or child.offset < 0:
                return 0
            if child.n_buffers != (2 if width else 3) or child.buffers[1] == NULL:
                return 0
            if child.null_count and child.buffers[0] != NULL:
                return 0
            if width:
                sizes[part] = rows * width
            else:
                offsets = <const int32_t*>child.buffers[1] + child.offset
                each = <int64_t>offsets[rows] - offsets[0]
                if offsets[0] < 0 or each < 0 or (each and child.buffers[2] == NULL):
                    return 0
                wrong = 0
                for row in range(rows):
                    wrong |= offsets[row] > offsets[row + 1]
                if wrong:
                    # The longer way finds the error.
                    return 0
                sizes[part] = 4 * rows
                size += sizes[part]
                part += 1
                sizes[part] = each
            size += sizes[part]
            part += 1
        if size > self._most_bytes:
            return 0
        if self._slab is None:
            self._lay_out(rows, size, sizes)
        for part in range(self._parts):
            if sizes[part] > self._room[part] - self._used[part]:
                return 0
        part = 0
        for column in range(self._columns):
            child, width = batch.children[column], self._widths[column]
            into = self._slab._data + self._start[part] + self._used[part]
            self._used[part] += sizes[part]
            if width:
                memcpy(into, <const uint8_t*>child.buffers[1] + child.offset * width, sizes[part])
                part += 1
                continue
            offsets, ends = <const int32_t*>child.buffers[1] + child.offset, <int32_t*>into
            part += 1
            base = self._used[part] - offsets[0]
            for row in range(1, rows + 1):
                ends[row - 1] = <int32_t>(offsets[row] + base)
            into = self._slab._data + self._start[part] + self._used[part]
            memcpy(into, <const uint8_t*>child.buffers[2] + offsets[0], sizes[part])
            self._used[part] += sizes[part]
            part += 1
        self._rows += rows
        return size

    cdef int _lay_out(self, int64_t rows, int64_t size, int64_t* sizes) except -1:
        """Makes room for as many batches of this size as may come."""
        cdef int64_t copies, at
        cdef int column, part = 0
        copies = min(self._most_rows // rows, self._most_bytes // size, self._copies_max)
        at = padded(PyBytes_GET_SIZE(self._head))
        for column in range(self._columns):
            if not self._widths[column]:
                self._start[part], self._used[part] = at, 4
                self._room[part] = sizes[part] * copies + 4
                at += padded(self._room[part])
                part += 1
                # The texts of later batches seldom have exactly the same length.
                self._room[part] = sizes[part] * copies
                if copies > 1:
                    self._room[part] += (sizes[part] * copies >> 5) + 64
            else:
                self._room[part] = sizes[part] * copies
            self._start[part], self._used[part] = at, 0
            at += padded(self._room[part])
            part += 1
        self._slab = Slab(at, True)
        part = 0
        for column in range(self._columns):
            if not self._widths[column]:
                write32(self._slab._data + self._start[part], 0)
                part += 1
            part += 1
        return 0

    def seal(self):
        """Everything that was added, as one IPC message. Nothing may be added any more."""
        cdef int64_t body = padded(PyBytes_GET_SIZE(self._head)), size = body, gap
        cdef int64_t[2 * COLUMNS_MAX] start
        cdef Slab slab = self._slab, other
        cdef uint8_t* into
        cdef uint8_t* head
        cdef int column, part = 0, number = 0
        if slab is None:
            raise ValueError("nothing was added")
        self._slab = None
        for part in range(self._parts):
            size += padded(self._used[part])
        # If much of it is empty, it is copied to a place of the right size.
        if size < slab._size - (slab._size >> 4):
            # A batch that is kept long (retention) takes no more memory than it needs.
            if size <= SLAB_STEP:
                found = PyBytes_FromStringAndSize(NULL, size)
                into = <uint8_t*>PyBytes_AS_STRING(found)
            else:
                found = other = Slab(size, True)
                into = other._data
            size = body
            for part in range(self._parts):
                start[part] = size
                memcpy(into + size, slab._data + self._start[part], self._used[part])
                size += padded(self._used[part])
        else:
            found, into = slab, slab._data
            for part in range(self._parts):
                start[part] = self._start[part]
        # The gaps may hold old contents, which no reader may see.
        for part in range(self._parts):
            gap = start[part + 1] if part + 1 < self._parts else len(found)
            gap -= start[part] + self._used[part]
            memset(into + start[part] + self._used[part], 0, gap)
        head = into
        memcpy(head, PyBytes_AS_STRING(self._head), PyBytes_GET_SIZE(self._head))
        memset(head + PyBytes_GET_SIZE(self._head), 0, body - PyBytes_GET_SIZE(self._head))
        write64(head + self._length_at, self._rows)
        write64(head + self._body_length_at, len(found) - body)
        part = 0
        for column in range(self._columns):
            write64(head + self._nodes_at + 16 * column, self._rows)
            write64(head + self._nodes_at + 16 * column + 8, 0)
            write64(head + self._buffers_at + 16 * number, start[part] - body)
            # Without nulls there are no bits for them.
            write64(head + self._buffers_at + 16 * number + 8, 0)
            number += 1
            for _ in range(1 if self._widths[column] else 2):
                write64(head + self._buffers_at + 16 * number, start[part] - body)
                write64(head + self._buffers_at + 16 * number + 8, self._used[part])
                number += 1
                part += 1
        return found


# Texts of peers.


cdef bint is_ascii(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef uint64_t all = 0, word
    cdef const uint8_t* stop
    while end - at >= 8:
        stop = at + 4096 if end - at >= 4096 else at + ((end - at) & ~7)
        while at < stop:
            memcpy(&word, at, 8)
            all |= word
            at += 8
        if all & HIGH_BITS:
            return False
    while at < end:
        all |= at[0]
        at += 1
    return not all & HIGH_BITS


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef uint64_t[4] words
    cdef uint8_t lead, next
    while at < end:
        while end - at >= 32:
            memcpy(words, at, 32)
            if (words[0] | words[1] | words[2] | words[3]) & HIGH_BITS:
                break
            at += 32
        while end - at >= 8:
            memcpy(words, at, 8)
            if words[0] & HIGH_BITS:
                break
            at += 8
        if at == end:
            return True
        lead = at[0]
        if lead < 0x80:
            at += 1
        elif 0xC2 <= lead < 0xE0:
            if end - at < 2 or at[1] & 0xC0 != 0x80:
                return False
            at += 2
        elif lead & 0xF0 == 0xE0:
            if end - at < 3 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80:
                return False
            next = at[1]
            if (lead == 0xE0 and next < 0xA0) or (lead == 0xED and next >= 0xA0):
                # It is longer than necessary, or half of a surrogate pair.
                return False
            at += 3
        elif 0xF0 <= lead < 0xF5:
            if end - at < 4 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80 or at[3] & 0xC0 != 0x80:
                return False
            next = at[1]
            if (lead == 0xF0 and next < 0x90) or (lead == 0xF4 and next >= 0x90):
                return False
            at += 4
        else:
            return False
    return True


def are_texts(offsets, data, int64_t rows, bint utf8):
    """Whether a column's offsets and bytes are well-formed texts or byte strings.

    They must be in order and inside the data, and each text must be UTF-8. None means that the
    numbers are not aligned.
    """
    cdef Py_buffer ends, chars
    cdef const int32_t* at
    cdef const uint8_t* text
    cdef int64_t row, size
    cdef uint32_t wrong = 0
    if rows < 0:
        return False
    PyObject_GetBuffer(offsets, &ends, PyBUF_SIMPLE)
    try:
        if <size_t>ends.buf & 3:
            return None
        if ends.len < 4 * (rows + 1):
            return rows == 0 and ends.len == 0
        at = <const int32_t*>ends.buf
        PyObject_GetBuffer(data, &chars, PyBUF_SIMPLE)
        try:
            text, size = <const uint8_t*>chars.buf, chars.len
            if at[0] < 0 or at[rows] > size:
                return False
            for row in range(rows):
                wrong |= at[row] > at[row + 1]
            if wrong or not utf8:
                return not wrong
            if is_ascii(text + at[0], text + at[rows]):
                return True
            if not is_utf8(text + at[0], text + at[rows]):
                return False
            # No text begins in the middle of a character.
            for row in range(rows):
                if at[row] < at[rows]:
                    wrong |= text[at[row]] & 0xC0 == 0x80
            return not wrong
        finally:
            PyBuffer_Release(&chars)
    finally:
        PyBuffer_Release(&ends)


# Messages that carry columns.


def bulk(head, dict places not None):
    """Where the columns are in the message that begins with ``head``.

    The result is the start of their field, the start of the columns, and their end. None means
    that there are none. ``places`` says by the tag of a message which field has them.
    """
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef Py_ssize_t count, number, place, before
    cdef uint64_t size
    PyObject_GetBuffer(head, &view, PyBUF_SIMPLE)
    try:
        start = at = <const uint8_t*>view.buf
        end = at + view.len
        if not array_of(&at, end, &count) or count < 2 or at >= end or at[0] >= 0x80:
            return None
        found = places.get(at[0])
        if found is None:
            return None
        place = found
        if place >= count:
            return None
        for number in range(place):
            if not skip(&at, end, 0):
                return None
        before = at - start
        if end - at < 6 or at[0] != 0xC6:
            return None
        size = big_endian(at + 1, 4)
        if at[5] != COLUMNS_MARK:
            return None
        return before, before + 5, before + 5 + size
    finally:
        PyBuffer_Release(&view)
