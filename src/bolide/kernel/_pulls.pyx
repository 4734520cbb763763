# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `pulls`, where everything is described.

It may leave to the ordinary way what its twin would take, never the other way round.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from bolide.kernel._bytes cimport put32, u32, u64, write_number
from bolide.kernel._fields cimport BORN_V6, MAGIC_V1, MAGIC_V2, V4_SIZE, V6_SIZE, Fields, cut
from bolide.kernel._sieves cimport UNSURE, YES, Sieve
from bolide.version import ROCKETMQ_VERSION

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <unistd.h>
    static int bolide_resident(uintptr_t from, size_t size, unsigned char *pages, size_t most)
    {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = from - from % page;
        size_t count = (from - start + size + page - 1) / page, i;
        if (count > most || mincore((void *)start, from - start + size, pages))
            return 0;
        for (i = 0; i < count; i++)
            if (!(pages[i] & 1))
                return 0;
        return 1;
    }
    #else
    static int bolide_resident(uintptr_t from, size_t size, unsigned char *pages, size_t most)
    {
        return 0;
    }
    #endif
    """
    int resident "bolide_resident"(uintptr_t start, size_t size, unsigned char *pages, size_t most) noexcept nogil
    void *memmem(const void *text, size_t size, const void *word, size_t word_size) noexcept nogil

cdef enum:
    MAX_PULL_HEADER = 2048
    MAX_PAGES = 1024
    MAX_STRETCH = 1024 * 1024
    MAX_FRAME_SIZE = 16 * 1024 * 1024
    MIN_RECORD = 91
    UNIT_SIZE = 20
    PLACE_AT = 28
    FLAG_AT = 36
    BORN_HOST_AT = 48
    HEAD_ROOM = 256  # of a response, beside its texts: prefix and numbers

cdef const char *BEGIN = b'{"code":'
cdef const char *BROKER = b',"extFields":{"suggestWhichBrokerId":"'
cdef const char *NEXT = b'","nextBeginOffset":"'
cdef const char *LOW = b'","minOffset":"'
cdef const char *HIGH = b'","maxOffset":"'
cdef bytes LAST = f'","serializeTypeCurrentRPC":"JSON","version":{ROCKETMQ_VERSION}}}'.encode()

cdef struct Number:
    const uint8_t *at
    const uint8_t *end
    int64_t value

cdef struct Piece:
    const uint8_t *at
    Py_ssize_t size


# The request


cdef bint find_number(
    const uint8_t *text, Py_ssize_t size, const char *name, Py_ssize_t name_size, Number *number
) noexcept nogil:
    """The whole number that follows a name, as everybody writes it, and something follows it."""
    cdef const uint8_t *p = <const uint8_t *>memmem(text, size, name, name_size)
    cdef const uint8_t *end = text + size
    cdef const uint8_t *digits
    cdef int64_t value = 0
    cdef bint negative
    if p == NULL:
        return False
    p += name_size
    number.at = p
    negative = p < end and p[0] == 0x2D
    if negative:
        p += 1
    digits = p
    while p < end and 0x30 <= p[0] <= 0x39 and p - digits < 18:
        value = 10 * value + (p[0] - 0x30)
        p += 1
    if p == digits or p >= end or (digits[0] == 0x30 and (p - digits > 1 or negative)):
        return False
    number.end = p
    number.value = -value if negative else value
    return True


def read_plain_pull(bytes data, Py_ssize_t position):
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(data) - position
    cdef int64_t length, size
    cdef Number numbers[3]
    cdef Number swap
    cdef int64_t values[3]
    cdef int i
    cdef bytes key
    cdef char *into
    cdef const uint8_t *at
    if position < 0 or left < 8:
        return None
    start += position
    length, size = u32(start), u32(start + 4)
    if length > left - 4 or size > MAX_PULL_HEADER or size + 4 != length:
        return None
    start += 8
    if not find_number(start, size, b'"queueOffset":"', 15, &numbers[0]):
        return None
    if not find_number(start, size, b'"commitOffset":"', 16, &numbers[1]):
        return None
    if not find_number(start, size, b'"opaque":', 9, &numbers[2]):
        return None
    if numbers[0].value < 0 or numbers[0].end[0] != 0x22 or numbers[1].end[0] != 0x22:
        return None
    if numbers[2].end[0] != 0x2C and numbers[2].end[0] != 0x7D:
        return None
    if not INT32_MIN <= numbers[2].value <= INT32_MAX:
        return None
    for i in range(3):
        values[i] = numbers[i].value
    if numbers[1].at < numbers[0].at:
        swap = numbers[0]; numbers[0] = numbers[1]; numbers[1] = swap
    if numbers[2].at < numbers[1].at:
        swap = numbers[1]; numbers[1] = numbers[2]; numbers[2] = swap
    if numbers[1].at < numbers[0].at:
        swap = numbers[0]; numbers[0] = numbers[1]; numbers[1] = swap
    left = size
    for i in range(3):
        left -= numbers[i].end - numbers[i].at
    key = PyBytes_FromStringAndSize(NULL, left)
    into, at = PyBytes_AS_STRING(key), start
    for i in range(3):
        memcpy(into, at, numbers[i].at - at)
        into += numbers[i].at - at
        at = numbers[i].end
    memcpy(into, at, start + size - at)
    return position + 4 + length, key, values[0], values[1], values[2]


# The answer


cdef inline uint8_t *put(uint8_t *to, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef inline uint8_t *put_bytes(uint8_t *to, bytes data) noexcept:
    return put(to, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline uint8_t *put_number(uint8_t *to, int64_t number) noexcept nogil:
    return to + write_number(number, to)


cdef class Gathered:
    """The records found so far: what lies in the block at hand as places, what came before copied.

    One for all answers: they are made one after the other.
    """
    cdef Piece *pieces
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef uint8_t *copied
    cdef Py_ssize_t copied_size
    cdef Py_ssize_t copied_room
    cdef bint busy

    def __dealloc__(self):
        free(self.pieces)
        free(self.copied)

    cdef int add(self, const uint8_t *at, Py_ssize_t size) except -1:
        cdef Piece *last = &self.pieces[self.count - 1]
        cdef Piece *more
        if self.count and last.at + last.size == at:
            last.size += size
            return 0
        if self.count == self.room:
            more = <Piece *>realloc(self.pieces, (2 * self.room + 64) * sizeof(Piece))
            if more == NULL:
                raise MemoryError
            self.pieces, self.room = more, 2 * self.room + 64
        self.pieces[self.count] = Piece(at, size)
        self.count += 1
        return 0

    cdef int copy(self) except -1:
        """Take the records out of their block, which is going to be let go of."""
        cdef Py_ssize_t size = self.copied_size + self.size()
        cdef uint8_t *more
        if size > self.copied_room:
            more = <uint8_t *>realloc(self.copied, 2 * size)
            if more == NULL:
                raise MemoryError
            self.copied, self.copied_room = more, 2 * size
        self.put(self.copied + self.copied_size)
        self.copied_size, self.count = size, 0
        return 0

    cdef Py_ssize_t size(self) noexcept:
        cdef Py_ssize_t i, size = 0
        for i in range(self.count):
            size += self.pieces[i].size
        return size

    cdef uint8_t *put(self, uint8_t *to) noexcept:
        cdef Py_ssize_t i
        for i in range(self.count):
            to = put(to, self.pieces[i].at, self.pieces[i].size)
        return to

    cdef void clear(self) noexcept:
        self.count = self.copied_size = 0
        if self.copied_room > MAX_STRETCH:
            free(self.copied)
            self.copied, self.copied_room = NULL, 0


cdef struct Taken:
    int64_t passed
    int64_t count
    int64_t size
    int64_t place  # of the last record
    int64_t stored


cdef Gathered shared = Gathered()


cdef class PullAnswers:
    cdef int64_t max_count
    cdef int64_t max_size
    cdef int64_t usual
    cdef int64_t slow
    cdef int64_t far
    cdef int32_t *codes
    cdef Py_ssize_t code_count
    cdef bytes flags
    cdef Sieve sieve

    def __init__(
        self, *, int64_t max_count, int64_t max_size, codes, brokers, far, sys_flags, Sieve sieve=None
    ):
        cdef Py_ssize_t i
        if self.flags is not None:
            raise RuntimeError("made once")
        self.max_count = max_count
        self.max_size = max_size
        self.sieve = sieve
        self.usual, self.slow = brokers
        self.far = min(far, INT64_MAX)
        topic, group = sys_flags
        self.flags = (
            f'","topicSysFlag":"{topic}","groupSysFlag":"{group}"}},'
            '"flag":1,"language":"PYTHON","opaque":'
        ).encode()
        if codes is not None:
            wanted = sorted(code for code in codes if INT32_MIN <= code <= INT32_MAX)
            self.codes = <int32_t *>malloc((len(wanted) + 1) * sizeof(int32_t))
            if self.codes == NULL:
                raise MemoryError
            for i in range(len(wanted)):
                self.codes[i] = wanted[i]
            self.code_count = len(wanted)

    def __dealloc__(self):
        free(self.codes)

    def found(
        self,
        int64_t opaque,
        int64_t queue_offset,
        int64_t min_offset,
        int64_t max_offset,
        int64_t log_end,
        units,
        read,
    ):
        cdef Py_buffer source
        cdef Taken taken
        cdef Gathered gathered = shared if not shared.busy else Gathered()
        cdef int64_t behind = 0, next_offset
        gathered.busy = True
        PyObject_GetBuffer(units, &source, PyBUF_SIMPLE)
        block = None
        try:
            block = self.take(<const uint8_t *>source.buf, source.len, read, gathered, &taken)
            if block is None or taken.passed == 0:
                return None
            next_offset = queue_offset + taken.passed
            if taken.count == 0:
                frame = self.write(20, b"NO_MATCHED_MESSAGE", self.usual, next_offset, min_offset, max_offset, opaque, None)
                return frame, next_offset, 0, 0, 0, 0
            behind = log_end - taken.place if log_end > taken.place else 0
            frame = self.write(
                0, b"FOUND", self.slow if behind > self.far else self.usual, next_offset,
                min_offset, max_offset, opaque, gathered,
            )
            if frame is None:
                return None
            return frame, next_offset, taken.count, taken.size, behind, taken.stored
        finally:
            PyBuffer_Release(&source)
            gathered.clear()
            gathered.busy = False

    def tell(self, status, int64_t opaque, int64_t next_offset, int64_t low, int64_t high):
        code, remark = status
        return self.write(code, remark.encode(), self.usual, next_offset, low, high, opaque, None)

    cdef object take(
        self, const uint8_t *units, Py_ssize_t size, object read, Gathered gathered, Taken *taken
    ):
        """Find the records; returns what keeps them in place, None if they are not for us."""
        cdef Block block = Block()
        cdef const uint8_t *unit = units
        cdef const uint8_t *end = units + size
        cdef const uint8_t *record
        cdef int64_t place, code
        cdef uint64_t distance
        cdef int32_t told
        cdef Fields fields
        cdef int verdict
        taken[0] = Taken(0, 0, 0, 0, 0)
        while end - unit >= UNIT_SIZE:
            place, told = <int64_t>u64(unit), <int32_t>u32(unit + 8)
            if told < MIN_RECORD or told >= MAX_FRAME_SIZE or place < 0:
                return None
            if taken.count and (taken.count >= self.max_count or taken.size + told > self.max_size):
                break
            taken.passed += 1
            if self.codes != NULL:
                code = <int64_t>u64(unit + 12)
                if not INT32_MIN <= code <= INT32_MAX:
                    return None
                if not self.wants(<int32_t>code):
                    unit += UNIT_SIZE
                    continue
            distance = <uint64_t>place - <uint64_t>block.start
            if place < block.start or told > block.size or distance > <uint64_t>(block.size - told):
                gathered.copy()
                if not block.fill(read(place, told, stretch(unit, end, self.max_count - taken.count)), place, told):
                    return None
                distance = 0
            record = block.at + distance
            if u32(record) != <uint32_t>told or <int64_t>u64(record + PLACE_AT) != place:
                return None
            if u32(record + 4) != MAGIC_V1 and u32(record + 4) != MAGIC_V2:
                return None
            if self.sieve is not None:
                verdict = self.sieve.test.judge(fields.properties) if cut(record, told, &fields) else UNSURE
                if verdict == UNSURE:
                    return None
                if verdict != YES:
                    unit += UNIT_SIZE
                    continue
            gathered.add(record, told)
            taken.count += 1
            taken.size += told
            taken.place = place
            taken.stored = stored_at(record)
            unit += UNIT_SIZE
        return block

    cdef bint wants(self, int32_t code) noexcept:
        cdef Py_ssize_t low = 0, high = self.code_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.codes[middle] < code:
                low = middle + 1
            else:
                high = middle
        return low < self.code_count and self.codes[low] == code

    cdef object write(
        self, int64_t code, bytes remark, int64_t broker, int64_t next_offset, int64_t low,
        int64_t high, int64_t opaque, Gathered gathered,
    ):
        """The frame of an answer, None if it would be too large."""
        cdef uint8_t header[512]
        cdef uint8_t *at = header + 8
        cdef Py_ssize_t size, body = 0
        cdef bytes frame
        if PyBytes_GET_SIZE(self.flags) + PyBytes_GET_SIZE(remark) + PyBytes_GET_SIZE(LAST) + HEAD_ROOM > 512:
            raise ValueError(f"a header too long: {remark!r}")
        at = put_number(put(at, BEGIN, 8), code)
        at = put_number(put(at, BROKER, 38), broker)
        at = put_number(put(at, NEXT, 21), next_offset)
        at = put_number(put(at, LOW, 15), low)
        at = put_number(put(at, HIGH, 15), high)
        at = put_number(put_bytes(at, self.flags), opaque)
        at = put_bytes(put_bytes(put(at, b',"remark":"', 11), remark), LAST)
        size = at - header
        if gathered is not None:
            body = gathered.copied_size + gathered.size()
        if size + body > MAX_FRAME_SIZE:
            return None
        put32(header, <uint32_t>(size - 4 + body))
        put32(header + 4, <uint32_t>(size - 8))
        frame = PyBytes_FromStringAndSize(NULL, size + body)
        at = put(<uint8_t *>PyBytes_AS_STRING(frame), header, size)
        if gathered is not None:
            gathered.put(put(at, gathered.copied, gathered.copied_size))
        return frame


cdef class Block:
    """Bytes of the log that are held."""
    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *at
    cdef Py_ssize_t size
    cdef int64_t start

    cdef bint fill(self, object data, int64_t start, Py_ssize_t least) except -1:
        """Hold these bytes instead; False if they are too few."""
        if data is None:
            return False
        self.drop()
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.at, self.size, self.start = <const uint8_t *>self.view.buf, self.view.len, start
        return self.size >= least

    cdef void drop(self) noexcept:
        if self.held:
            PyBuffer_Release(&self.view)
        self.held, self.size = False, 0

    def __dealloc__(self):
        self.drop()


cdef inline int64_t stored_at(const uint8_t *record) noexcept nogil:
    cdef Py_ssize_t host = V6_SIZE if u32(record + FLAG_AT) & BORN_V6 else V4_SIZE
    return <int64_t>u64(record + BORN_HOST_AT + host)


cdef int64_t stretch(const uint8_t *unit, const uint8_t *end, int64_t count) noexcept nogil:
    cdef int64_t place = <int64_t>u64(unit), size = <int32_t>u32(unit + 8), last_place, wished
    cdef const uint8_t *last = unit
    if count > 1:
        count = min(count, (end - unit) // UNIT_SIZE)
        last = unit + (count - 1) * UNIT_SIZE
    last_place = <int64_t>u64(last)
    if last_place < place or last_place - place > MAX_STRETCH:
        return MAX_STRETCH if last_place > place and size < MAX_STRETCH else size
    wished = min(last_place - place + <int32_t>u32(last + 8), MAX_STRETCH)
    return wished if wished > size else size


def is_resident(view, Py_ssize_t at, Py_ssize_t size):
    cdef Py_buffer source
    cdef unsigned char pages[MAX_PAGES]
    cdef bint found = False
    PyObject_GetBuffer(view, &source, PyBUF_SIMPLE)
    if 0 <= at and 0 < size <= source.len and at <= source.len - size:
        found = resident(<uintptr_t>source.buf + at, size, pages, MAX_PAGES)
    PyBuffer_Release(&source)
    return found
