# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Plain pulls: reading requests from received bytes, and writing replies straight from the log.

The pulls of a consumer for one queue differ in three numbers, opaque, queue offset and commit offset,
and in their signature, if they have one. The rest of the header is the key under which `fast_path.pulls` keeps a plan. Replies are the same
bytes that the handlers would write.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from bolide.kernel._bytes cimport put32, u32, u64, write_number
from bolide.kernel._fields cimport Fields, Slice, cut
from bolide.kernel._header cimport named, number_of
from bolide.kernel._layouts cimport BORN_V6, MAGIC_V1, MAGIC_V2, UNIT_SIZE, V4_SIZE, V6_SIZE
from bolide.kernel._sieves cimport UNSURE, YES, Sieve

from bolide.protocol import binary_fields
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.version import ROCKETMQ_VERSION

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    """
    void *memmem(const void *text, size_t size, const void *word, size_t word_size) noexcept nogil

cdef enum:
    MAX_PULL_HEADER = 2048
    MAX_READ_AHEAD = 1024 * 1024
    MAX_FRAME_SIZE = 16 * 1024 * 1024
    MIN_RECORD = 91
    PLACE_AT = 28
    FLAG_AT = 36
    BORN_HOST_AT = 48
    MAX_REPLY_HEADER = 512
    MAX_CUT = 6  # Java's clients write each field of a signed pull twice
    HEAD_ROOM = 256  # of a reply, beside its texts: prefix and numbers
    PULL_MESSAGE = 11
    LITE_PULL_MESSAGE = 361
    BINARY_CODE_END = 2
    BINARY_OPAQUE_AT = 5
    BINARY_FLAG_AT = 9
    BINARY_REMARK_AT = 13
    BINARY_FIELDS_AT = 21

cdef const char *BEGIN = b'{"code":'
cdef const char *BROKER = b',"extFields":{"suggestWhichBrokerId":"'
cdef const char *NEXT = b'","nextBeginOffset":"'
cdef const char *LOW = b'","minOffset":"'
cdef const char *HIGH = b'","maxOffset":"'
cdef bytes LAST = f'","serializeTypeCurrentRPC":"JSON","version":{ROCKETMQ_VERSION}}}'.encode()

cdef bytes BINARY_HEAD = binary_fields.encode(Frame(flag=FrameFlag.RESPONSE))[:BINARY_REMARK_AT]
cdef const char *BROKER_FIELD = b"\0\x14suggestWhichBrokerId"
cdef const char *NEXT_FIELD = b"\0\x0fnextBeginOffset"
cdef const char *LOW_FIELD = b"\0\x09minOffset"
cdef const char *HIGH_FIELD = b"\0\x09maxOffset"

for _code, _value in (
    (RequestCode.PULL_MESSAGE, PULL_MESSAGE), (RequestCode.LITE_PULL_MESSAGE, LITE_PULL_MESSAGE),
):
    if _code != _value:
        raise RuntimeError(f"{_code!r} is compiled as {_value}")

cdef struct Number:
    const uint8_t *at
    const uint8_t *end
    int64_t value

cdef struct Piece:
    const uint8_t *at
    Py_ssize_t size


cdef bint find_number(
    const uint8_t *text, Py_ssize_t size, const char *name, Py_ssize_t name_size, Number *number
) noexcept nogil:
    """Find the whole number behind a name; it has no leading zeros and is not the end of the text."""
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


cdef bint find_signature(const uint8_t *text, Py_ssize_t size, Number *signature) noexcept nogil:
    """Find the letters of a signature; False if there is one that is not written in Base64."""
    cdef const uint8_t *p = <const uint8_t *>memmem(text, size, b'"Signature":"', 13)
    cdef const uint8_t *end = text + size
    signature.at = signature.end = NULL
    if p == NULL:
        return True
    p += 13
    signature.at = p
    while p < end and is_base64(p[0]):
        p += 1
    signature.end = p
    return p < end and p[0] == 0x22


cdef inline bint is_base64(uint8_t letter) noexcept nogil:
    return (
        0x61 <= letter <= 0x7A or 0x41 <= letter <= 0x5A or 0x30 <= letter <= 0x39
        or letter == 0x2B or letter == 0x2F or letter == 0x3D
    )


cdef inline void sort_by_place(Number *numbers, int count) noexcept nogil:
    cdef int i, at
    cdef Number number
    for i in range(1, count):
        number, at = numbers[i], i
        while at > 0 and number.at < numbers[at - 1].at:
            numbers[at] = numbers[at - 1]
            at -= 1
        numbers[at] = number


cdef inline uint8_t *put(uint8_t *to, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef inline uint8_t *put_bytes(uint8_t *to, bytes data) noexcept:
    return put(to, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline uint8_t *put_number(uint8_t *to, int64_t number) noexcept nogil:
    return to + write_number(number, to)


def read_pull(bytes data, Py_ssize_t position):
    """Read what may be a pull request and lies whole at `position`.

    Returns:
        Where the next frame begins, the key, queue offset, commit offset and opaque; None for any
        other request. That the numbers and the signature of a JSON header are the fields they look
        like must be checked once for each key, see `pulls.refill`; a binary header is parsed field
        by field. The signature is not verified.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(data) - position
    cdef int64_t length, size
    cdef Number numbers[4]
    cdef int64_t values[3]
    cdef int i, count = 3
    cdef bytes key
    cdef char *into
    cdef const uint8_t *at
    if position < 0 or left < 8:
        return None
    start += position
    length, size = u32(start), u32(start + 4)
    if start[4] == 1:
        return read_binary_pull(start, position, left, length, size & 0xFFFFFF)
    if length > left - 4 or size > MAX_PULL_HEADER or size + 4 != length:
        return None
    start += 8
    if size == 0 or start[0] != 0x7B:  # a key of a binary header begins with its code
        return None
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
    if not find_signature(start, size, &numbers[3]):
        return None
    if numbers[3].at != NULL:
        count = 4
    sort_by_place(numbers, count)
    left = size
    for i in range(count):
        left -= numbers[i].end - numbers[i].at
    key = PyBytes_FromStringAndSize(NULL, left)
    into, at = PyBytes_AS_STRING(key), start
    for i in range(count):
        memcpy(into, at, numbers[i].at - at)
        into += numbers[i].at - at
        at = numbers[i].end
    memcpy(into, at, start + size - at)
    return position + 4 + length, key, values[0], values[1], values[2]


cdef object read_binary_pull(
    const uint8_t *start, Py_ssize_t position, Py_ssize_t left, int64_t length, int64_t size
):
    """As `read_pull`, for a binary header: the key has all of it but numbers and signature, and their lengths."""
    cdef Slice cut_out[MAX_CUT]
    cdef Slice first[3]  # of each field that is cut out
    cdef Slice name, value
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t offset = -1, commit = 0
    cdef int64_t code
    cdef Py_ssize_t cut_size = 0
    cdef bytes key
    cdef uint8_t *into
    cdef int count = 0, which, seen = 0
    if length > left - 4 or size > MAX_PULL_HEADER or size + 4 != length or size < BINARY_FIELDS_AT:
        return None
    start += 8
    code = start[0] << 8 | start[1]
    if code != PULL_MESSAGE and code != LITE_PULL_MESSAGE:
        return None
    at, end = start + BINARY_FIELDS_AT, start + size
    if u32(start + BINARY_REMARK_AT) != 0 or u32(start + BINARY_FIELDS_AT - 4) != end - at:
        return None
    while at < end:
        if end - at < 2 or at[0] & 0x80:
            return None
        name = Slice(at + 2, at[0] << 8 | at[1])
        if end - at < 2 + name.size + 4:
            return None
        at += 2 + name.size
        value = Slice(at + 4, u32(at))
        if value.size > end - at - 4:
            return None
        which = (
            1 if named(name, b"queueOffset", 11)
            else 2 if named(name, b"commitOffset", 12)
            else 4 if named(name, b"Signature", 9)
            else 0
        )
        if which:
            if count == MAX_CUT:
                return None
            if not seen & which:
                first[which >> 1] = value
            elif not named(value, <const char *>first[which >> 1].at, first[which >> 1].size):
                return None
            seen |= which
            cut_out[count] = value
            count += 1
            cut_size += 4 + value.size
            if which != 4 and not number_of(value, -INT64_MAX, INT64_MAX, &offset if which == 1 else &commit):
                return None
        at += 4 + value.size
    if seen & 3 != 3 or offset < 0:
        return None
    key = PyBytes_FromStringAndSize(NULL, size - 8 - cut_size)
    into = put(<uint8_t *>PyBytes_AS_STRING(key), start, BINARY_OPAQUE_AT)
    into = put(into, start + BINARY_FLAG_AT, BINARY_FIELDS_AT - 4 - BINARY_FLAG_AT)
    at = start + BINARY_FIELDS_AT
    for which in range(count):
        into = put(into, at, cut_out[which].at - 4 - at)
        at = cut_out[which].at + cut_out[which].size
    put(into, at, end - at)
    return position + 4 + length, key, offset, commit, <int32_t>u32(start + BINARY_OPAQUE_AT)


cdef inline uint8_t *put_field(uint8_t *to, const char *name, Py_ssize_t size, int64_t number) noexcept nogil:
    """Write a field of a binary header; `name` includes its length."""
    cdef Py_ssize_t digits
    to = put(to, name, size)
    digits = write_number(number, to + 4)
    put32(to, <uint32_t>digits)
    return to + 4 + digits


cdef class Gathered:
    """The records found so far: pieces of the current block, and copies from earlier blocks.

    One instance serves all replies, which are written one after the other.
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
        """Copy the records out of their block, which is about to be released."""
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
        if self.copied_room > MAX_READ_AHEAD:
            free(self.copied)
            self.copied, self.copied_room = NULL, 0


cdef struct Progress:
    int64_t passed  # units looked at
    int64_t count
    int64_t size
    int64_t place  # physical offset of the last record
    int64_t stored  # its store timestamp in ms


cdef Gathered shared = Gathered()


cdef class PullReplies:
    """Writes the replies to the pulls of one plan.

    Args:
        binary: whether requests and replies have binary headers.
        max_count: how many records a reply has at most.
        max_size: how many bytes of records; the first record may be larger.
        codes: the tags codes that are wanted; None for all.
        brokers: ids of the broker to pull from next, usually and if the consumer is far behind.
        far: bytes of the log that count as far.
        sys_flags: of the topic and of the group.
        sieve: the SQL filter that records with a wanted code must also pass; None for all.
    """
    cdef bint binary
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
        self, *, bint binary, int64_t max_count, int64_t max_size, codes, brokers, far, sys_flags, Sieve sieve=None
    ):
        cdef Py_ssize_t i
        if self.flags is not None:
            raise RuntimeError("__init__ was called twice")
        self.binary = binary
        self.max_count = max_count
        self.max_size = max_size
        self.sieve = sieve
        self.usual, self.slow = brokers
        self.far = min(far, INT64_MAX)
        topic, group = sys_flags
        if binary:
            fields = {"topicSysFlag": str(topic), "groupSysFlag": str(group)}
            self.flags = binary_fields.encode(Frame(fields=fields))[BINARY_FIELDS_AT:]
        else:
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
        """The reply with the records of these units, the first of which is at `queue_offset`.

        Args:
            read: called with a physical offset, the bytes needed and the bytes likely to be used;
                returns a buffer of the log, or None if reading would block.

        Returns:
            The frame, the next queue offset, how many records and bytes it has, how many bytes of
            the log follow the last record, and when that was stored in ms. None if a record cannot
            be read from memory, is not the one its unit names, or needs a slower filter.
        """
        cdef Py_buffer source
        cdef Progress progress
        cdef Gathered gathered = shared if not shared.busy else Gathered()
        cdef int64_t behind = 0, next_offset
        PyObject_GetBuffer(units, &source, PyBUF_SIMPLE)
        gathered.busy = True
        block = None
        try:
            block = self.gather(<const uint8_t *>source.buf, source.len, read, gathered, &progress)
            if block is None or progress.passed == 0:
                return None
            next_offset = queue_offset + progress.passed
            if progress.count == 0:
                frame = self.write(20, b"NO_MATCHED_MESSAGE", self.usual, next_offset, min_offset, max_offset, opaque, None)
                return frame, next_offset, 0, 0, 0, 0
            behind = log_end - progress.place if log_end > progress.place else 0
            frame = self.write(
                0, b"FOUND", self.slow if behind > self.far else self.usual, next_offset,
                min_offset, max_offset, opaque, gathered,
            )
            if frame is None:
                return None
            return frame, next_offset, progress.count, progress.size, behind, progress.stored
        finally:
            PyBuffer_Release(&source)
            gathered.clear()
            gathered.busy = False

    def empty(self, status, int64_t opaque, int64_t next_offset, int64_t low, int64_t high):
        """A reply without records; `status` is its response code and remark."""
        code, remark = status
        return self.write(code, remark.encode(), self.usual, next_offset, low, high, opaque, None)

    cdef object gather(
        self, const uint8_t *units, Py_ssize_t size, object read, Gathered gathered, Progress *progress
    ):
        """Find the records; returns the block that keeps them in place, None if the handlers must."""
        cdef Block block = Block()
        cdef const uint8_t *unit = units
        cdef const uint8_t *end = units + size
        cdef const uint8_t *record
        cdef int64_t place, code
        cdef uint64_t distance
        cdef int32_t told
        cdef Fields fields
        cdef int verdict
        progress[0] = Progress(0, 0, 0, 0, 0)
        while end - unit >= UNIT_SIZE:
            place, told = <int64_t>u64(unit), <int32_t>u32(unit + 8)
            if told < MIN_RECORD or told >= MAX_FRAME_SIZE or place < 0:
                return None
            if progress.count and (progress.count >= self.max_count or progress.size + told > self.max_size):
                break
            progress.passed += 1
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
                if not block.fill(read(place, told, read_ahead(unit, end, self.max_count - progress.count)), place, told):
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
            progress.count += 1
            progress.size += told
            progress.place = place
            progress.stored = stored_at(record)
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
        """The frame of a reply, None if it would be too large."""
        cdef uint8_t header[MAX_REPLY_HEADER]
        cdef uint8_t *at = header + 8
        cdef uint8_t *fields
        cdef Py_ssize_t size, body = 0
        cdef bytes frame
        if PyBytes_GET_SIZE(self.flags) + PyBytes_GET_SIZE(remark) + PyBytes_GET_SIZE(LAST) + HEAD_ROOM > MAX_REPLY_HEADER:
            raise ValueError(f"the remark is too long for a header: {remark!r}")
        if self.binary:
            at = put_bytes(at, BINARY_HEAD)
            header[8], header[9] = <uint8_t>(code >> 8), <uint8_t>code
            put32(header + 8 + BINARY_OPAQUE_AT, <uint32_t>opaque)
            put32(at, <uint32_t>PyBytes_GET_SIZE(remark))
            at = put_bytes(at + 4, remark)
            fields = at
            at = put_field(at + 4, BROKER_FIELD, 22, broker)
            at = put_field(at, NEXT_FIELD, 17, next_offset)
            at = put_field(at, LOW_FIELD, 11, low)
            at = put_bytes(put_field(at, HIGH_FIELD, 11, high), self.flags)
            put32(fields, <uint32_t>(at - fields - 4))
        else:
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
        put32(header + 4, <uint32_t>(size - 8) | (<uint32_t>1 << 24 if self.binary else 0))
        frame = PyBytes_FromStringAndSize(NULL, size + body)
        at = put(<uint8_t *>PyBytes_AS_STRING(frame), header, size)
        if gathered is not None:
            gathered.put(put(at, gathered.copied, gathered.copied_size))
        return frame


cdef class Block:
    """A buffer of the log while its records are in use."""
    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *at
    cdef Py_ssize_t size
    cdef int64_t start

    cdef bint fill(self, object data, int64_t start, Py_ssize_t least) except -1:
        """Hold other bytes; False if they are too few."""
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


cdef int64_t read_ahead(const uint8_t *unit, const uint8_t *end, int64_t count) noexcept nogil:
    cdef int64_t place = <int64_t>u64(unit), size = <int32_t>u32(unit + 8), last_place, wanted
    cdef const uint8_t *last = unit
    if count > 1:
        count = min(count, (end - unit) // UNIT_SIZE)
        last = unit + (count - 1) * UNIT_SIZE
    last_place = <int64_t>u64(last)
    if last_place < place or last_place - place > MAX_READ_AHEAD:
        return MAX_READ_AHEAD if last_place > place and size < MAX_READ_AHEAD else size
    wanted = min(last_place - place + <int32_t>u32(last + 8), MAX_READ_AHEAD)
    return wanted if wanted > size else size

