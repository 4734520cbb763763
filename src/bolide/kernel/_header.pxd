# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Zero-copy parser of the header of a frame, JSON or binary, as clients write it.

Only common headers are accepted: ASCII, no blanks, no nesting below the fields, no duplicate names,
no remark. A binary header may have a field again with the same value: Java's clients write the fields of
signed requests twice. The caller must decode other headers, which may be valid, by the general decoder.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from bolide.kernel._bytes cimport u32
from bolide.kernel._fields cimport Slice

cdef enum:
    MAX_FIELDS = 24
    BINARY_HEAD = 21  # up to the fields; see `protocol.binary_fields`

cdef struct Field:
    Slice name
    Slice value  # of a string the text between the quotes, with escapes
    bint quoted
    bint escaped

cdef struct Header:
    int64_t code
    int64_t flag
    int64_t opaque
    Slice opaque_text
    int count
    Field fields[MAX_FIELDS]


cdef inline bint named(Slice text, const char *name, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, name, size) == 0


cdef inline bint take_string(const uint8_t **at, const uint8_t *end, Slice *text, bint *escaped) noexcept nogil:
    """Parse a JSON string and advance behind it."""
    cdef const uint8_t *p = at[0]
    escaped[0] = False
    if p >= end or p[0] != 0x22:
        return False
    p += 1
    text.at = p
    while p < end and p[0] != 0x22:
        if p[0] < 0x20 or p[0] >= 0x80:
            return False
        if p[0] == 0x5C:
            escaped[0] = True
            p += 1
            if p >= end or p[0] < 0x20 or p[0] >= 0x80:
                return False
        p += 1
    if p >= end:
        return False
    text.size = p - text.at
    at[0] = p + 1
    return True


cdef inline Py_ssize_t unescape(Slice text, uint8_t *into) noexcept nogil:
    """Decode the escapes of a JSON string; returns the size, or -1 for an unusual escape."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef uint8_t letter
    cdef int high, low
    while at < end:
        letter = at[0]
        at += 1
        if letter == 0x5C:
            letter = at[0]  # `take_string` checked that one follows
            at += 1
            if letter == 0x75:  # u
                if end - at < 4 or at[0] != 0x30 or at[1] != 0x30:
                    return -1
                high, low = digit(at[2]), digit(at[3])
                if high < 0 or high > 7 or low < 0:
                    return -1
                letter = high << 4 | low
                at += 4
            elif letter == 0x6E:
                letter = 0x0A
            elif letter == 0x74:
                letter = 0x09
            elif letter == 0x72:
                letter = 0x0D
            elif letter == 0x62:
                letter = 0x08
            elif letter == 0x66:
                letter = 0x0C
            elif letter != 0x22 and letter != 0x5C and letter != 0x2F:
                return -1
        into[size] = letter
        size += 1
    return size


cdef inline int digit(uint8_t letter) noexcept nogil:
    if 0x30 <= letter <= 0x39:
        return letter - 0x30
    if 0x61 <= letter <= 0x66:
        return letter - 0x61 + 10
    if 0x41 <= letter <= 0x46:
        return letter - 0x41 + 10
    return -1


cdef inline bint take_word(const uint8_t **at, const uint8_t *end, Slice *text) noexcept nogil:
    """Parse a number, true, false or null and advance behind it."""
    cdef const uint8_t *p = at[0]
    text.at = p
    while p < end and (0x30 <= p[0] <= 0x39 or p[0] == 0x2D or 0x61 <= p[0] <= 0x7A):
        p += 1
    text.size = p - text.at
    at[0] = p
    return text.size > 0


cdef inline bint take_value(const uint8_t **at, const uint8_t *end, Field *field) noexcept nogil:
    field.quoted = at[0] < end and at[0][0] == 0x22
    field.escaped = False
    if field.quoted:
        return take_string(at, end, &field.value, &field.escaped)
    return take_word(at, end, &field.value)


cdef inline bint number_of(Slice text, int64_t least, int64_t most, int64_t *number) noexcept nogil:
    """Parse a canonical integer: no plus sign, no leading zeros."""
    cdef const uint8_t *p = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef bint negative = text.size > 0 and p[0] == 0x2D
    cdef int64_t value = 0
    if negative:
        p += 1
    if p >= end or end - p > 18 or (p[0] == 0x30 and (end - p > 1 or negative)):
        return False
    while p < end:
        if not 0x30 <= p[0] <= 0x39:
            return False
        value = 10 * value + (p[0] - 0x30)
        p += 1
    number[0] = -value if negative else value
    return least <= number[0] <= most


cdef inline bint take_key(const uint8_t **at, const uint8_t *end, Slice *name) noexcept nogil:
    cdef bint escaped
    if not take_string(at, end, name, &escaped) or escaped:
        return False
    if at[0] >= end or at[0][0] != 0x3A:
        return False
    at[0] += 1
    return True


cdef inline bint take_fields(const uint8_t **at, const uint8_t *end, Header *header) noexcept nogil:
    cdef Field *field
    cdef int other
    header.count = 0
    if at[0] >= end or at[0][0] != 0x7B:
        return False
    at[0] += 1
    while True:
        if header.count >= MAX_FIELDS:
            return False
        field = &header.fields[header.count]
        if not take_key(at, end, &field.name) or not take_value(at, end, field):
            return False
        for other in range(header.count):
            if named(header.fields[other].name, <const char *>field.name.at, field.name.size):
                return False
        header.count += 1
        if at[0] >= end:
            return False
        at[0] += 1
        if at[0][-1] == 0x7D:
            return True
        if at[0][-1] != 0x2C:
            return False


cdef inline bint read_header(const uint8_t *start, Py_ssize_t size, Header *header) noexcept nogil:
    """Parse a JSON header that fills the bytes exactly; False unless it is a common one."""
    cdef const uint8_t *at = start
    cdef const uint8_t *end = start + size
    cdef Slice name
    cdef Field value
    cdef int seen = 0, bit
    cdef int64_t value_number
    header.code = header.flag = header.opaque = 0
    header.count = 0
    header.opaque_text.size = 0
    if size < 2 or at[0] != 0x7B:
        return False
    at += 1
    while True:
        if not take_key(&at, end, &name):
            return False
        bit = 0
        if named(name, b"extFields", 9):
            bit = 1
            if not take_fields(&at, end, header):
                return False
        else:
            if not take_value(&at, end, &value):
                return False
            if named(name, b"code", 4):
                bit = 2
                if value.quoted or not number_of(value.value, -(1 << 31), (1 << 31) - 1, &header.code):
                    return False
            elif named(name, b"flag", 4):
                bit = 4
                if value.quoted or not number_of(value.value, -(1 << 31), (1 << 31) - 1, &header.flag):
                    return False
            elif named(name, b"opaque", 6):
                bit = 8
                header.opaque_text = value.value
                if value.quoted or not number_of(value.value, -(1 << 31), (1 << 31) - 1, &header.opaque):
                    return False
            elif named(name, b"language", 8):
                bit = 16
                if not value.quoted or value.escaped:
                    return False
            elif named(name, b"version", 7):
                bit = 32
                if value.quoted or not number_of(value.value, 0, (1 << 31) - 1, &value_number):
                    return False
            elif named(name, b"serializeTypeCurrentRPC", 23):
                bit = 64
                if not value.quoted or value.escaped:
                    return False
            else:
                return False  # an unexpected name, such as a remark
        if bit & seen:
            return False
        seen |= bit
        if at >= end:
            return False
        at += 1
        if at[-1] == 0x7D:
            return at == end and seen & 1 and seen & 2
        if at[-1] != 0x2C:
            return False


cdef inline bint read_binary_header(const uint8_t *start, Py_ssize_t size, Header *header) noexcept nogil:
    """As `read_header`, for a binary header."""
    cdef const uint8_t *at = start + BINARY_HEAD
    cdef const uint8_t *end = start + size
    header.count = 0
    header.opaque_text.size = 0
    if size < BINARY_HEAD or start[3] & 0x80 or u32(start + 13) != 0:  # negative version, or a remark
        return False
    header.code = start[0] << 8 | start[1]
    header.opaque, header.flag = <int32_t>u32(start + 5), <int32_t>u32(start + 9)
    if u32(start + 17) != end - at:
        return False
    while at < end:
        if header.count >= MAX_FIELDS or not take_binary_field(&at, end, header):
            return False
    return True


cdef inline bint take_binary_field(const uint8_t **at, const uint8_t *end, Header *header) noexcept nogil:
    cdef Field *field = &header.fields[header.count]
    cdef const uint8_t *p = at[0]
    cdef Py_ssize_t i
    cdef int other
    if end - p < 2 or p[0] & 0x80:
        return False
    field.name = Slice(p + 2, p[0] << 8 | p[1])
    if end - p - 2 < field.name.size + 4:
        return False
    p += 2 + field.name.size
    field.value = Slice(p + 4, u32(p))
    if field.value.size == 0 or field.value.size > end - p - 4:
        return False
    field.quoted, field.escaped = True, False
    for i in range(field.value.size):
        if field.value.at[i] >= 0x80:
            return False
        if field.value.at[i] < 0x20:
            field.escaped = True  # JSON would escape it
    at[0] = p + 4 + field.value.size
    for other in range(header.count):
        if named(header.fields[other].name, <const char *>field.name.at, field.name.size):
            return named(header.fields[other].value, <const char *>field.value.at, field.value.size)
    header.count += 1
    return True
