# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sends as they lie in a buffer: the compiled twin of `plain_sends`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from bolide.kernel._bytes cimport u32
from bolide.kernel._fields cimport Slice
from bolide.kernel._header cimport Field, Header, number_of, read_binary_header, read_header
from bolide.kernel._names cimport Named, find_named
from bolide.kernel._output cimport Output, reserve
from bolide.kernel._properties cimport asks, is_id
from bolide.kernel._transactions cimport PREPARED, wishes_half

cdef enum:
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    MAX_JSON_HEADER = 1024 * 1024
    MAX_PROPERTIES = 0x7FFF
    NOT_PLAIN_FLAGS = ~0x705  # how a body is compressed, and of a transaction
    ITEM_HEAD = 20  # of a message in a batch, up to its body
    LETTERS = 14  # the names of the fields, a to n


cdef struct Send:
    Py_ssize_t end
    int64_t code
    int64_t opaque
    bint binary  # how its header is written, and how it is answered
    bint one_way
    bint is_half
    bint has_group  # among its properties
    Slice group
    Slice topic
    int32_t queue_id
    uint32_t sys_flag
    int64_t born_timestamp
    int32_t flag
    Slice properties  # unescaped
    Named named
    Slice body


cdef struct Item:
    int32_t flag
    Slice body
    Slice properties


cdef inline Py_ssize_t unescape(Slice text, uint8_t *into) noexcept nogil:
    """The text of a JSON string, at most as long as it stands there; -1 for what is unusual."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef uint8_t letter
    cdef int high, low
    while at < end:
        letter = at[0]
        at += 1
        if letter == 0x5C:
            letter = at[0]  # there is one: `take_string` looked
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


cdef inline bint read_frame(const uint8_t *start, Py_ssize_t left, Send *send, Header *header) noexcept nogil:
    """Read the header of the frame that lies whole here, and where its body is."""
    cdef int64_t length, header_size
    if left < 8:
        return False
    length, header_size = u32(start), u32(start + 4)
    send.binary = start[4] == 1
    if send.binary:
        header_size &= 0xFFFFFF
    if length > left - 4 or header_size > MAX_JSON_HEADER or header_size + 4 > length:
        return False
    send.end = 4 + length
    send.body.at, send.body.size = start + 8 + header_size, length - 4 - header_size
    if send.binary:
        return read_binary_header(start + 8, header_size, header)
    return read_header(start + 8, header_size, header)


cdef inline bint read_send(Header *header, Send *send, Output *scratch) except -1:
    """Read the send of which the header was read; False if it is something else."""
    cdef Field *letters[LETTERS]
    cdef Field *field
    cdef int64_t number
    cdef int i
    cdef int unique_ids = 0
    cdef bint batch
    if header.code != SEND_MESSAGE_V2 and header.code != SEND_BATCH_MESSAGE or header.flag & 1:
        return False
    if send.body.size == 0:
        return False
    memset(letters, 0, sizeof(letters))
    for i in range(header.count):
        field = &header.fields[i]
        if field.name.size != 1 or not 0x61 <= field.name.at[0] < 0x61 + LETTERS:
            return False
        letters[field.name.at[0] - 0x61] = field
    send.code, send.opaque, send.one_way = header.code, header.opaque, header.flag & 2 != 0
    for i in (0, 1, 2):  # group, topic, default topic
        if letters[i] == NULL or not letters[i].quoted or letters[i].escaped:
            return False
    send.group, send.topic = letters[0].value, letters[1].value
    if not int_field(letters[3], &number):
        return False
    if not int_field(letters[4], &number) or number < 0:
        return False
    send.queue_id = <int32_t>number
    if not int_field(letters[5], &number) or number & NOT_PLAIN_FLAGS:
        return False
    send.sys_flag = <uint32_t>number
    if letters[6] == NULL or not number_of(letters[6].value, -(1 << 62), 1 << 62, &send.born_timestamp):
        return False
    if not int_field(letters[7], &number):
        return False
    send.flag = <int32_t>number
    if letters[9] != NULL and (not int_field(letters[9], &number) or number):  # tries so far
        return False
    if letters[10] != NULL and not is_word(letters[10], b"false", 5):  # a unit
        return False
    if letters[11] != NULL and not int_field(letters[11], &number):
        return False
    batch = letters[12] != NULL and is_word(letters[12], b"true", 4)
    if not batch and letters[12] != NULL and not is_word(letters[12], b"false", 5):
        return False
    if batch != (header.code == SEND_BATCH_MESSAGE):
        return False
    if letters[13] != NULL and (not letters[13].quoted or letters[13].escaped):
        return False
    send.properties.size = send.named.unique_id.size = 0
    send.properties.at = send.body.at
    field = letters[8]
    if field != NULL:
        if not field.quoted:
            return False
        send.properties = field.value
        if field.escaped and not send.binary:
            scratch.size = 0
            reserve(scratch, field.value.size)
            send.properties.size = unescape(field.value, scratch.data)
            send.properties.at = scratch.data
            if send.properties.size < 0:
                return False
    send.is_half = False
    if asks(send.properties, &unique_ids):
        return not batch and read_half_send(send)
    if send.sys_flag & PREPARED:
        return False  # a half's mark without its property
    if batch:
        return send.sys_flag == 0
    find_named(send.properties, &send.named)
    return unique_ids == 1 and is_id(send.named.unique_id)


cdef inline bint read_half_send(Send *send) noexcept nogil:
    if not wishes_half(send.properties, &send.has_group):
        return False
    send.is_half = True
    find_named(send.properties, &send.named)
    return send.group.size > 0


cdef inline bint int_field(Field *field, int64_t *number) noexcept nogil:
    return field != NULL and number_of(field.value, -(1 << 31), (1 << 31) - 1, number)


cdef inline bint is_word(Field *field, const char *word, Py_ssize_t size) noexcept nogil:
    return field.value.size == size and memcmp(field.value.at, word, size) == 0


cdef inline bint read_item(const uint8_t **next, const uint8_t *end, Item *item) noexcept nogil:
    """Step over a message of a batch (`protocol.batch`); False if its lengths do not add up."""
    cdef const uint8_t *at = next[0]
    cdef int64_t size, body_size, properties_size
    if end - at < ITEM_HEAD:
        return False
    size, item.flag, body_size = u32(at), <int32_t>u32(at + 12), u32(at + 16)
    if size > end - at or ITEM_HEAD + body_size + 2 > size:
        return False
    item.body = Slice(at + ITEM_HEAD, body_size)
    at += ITEM_HEAD + body_size
    properties_size = at[0] << 8 | at[1]
    if properties_size > MAX_PROPERTIES or ITEM_HEAD + body_size + 2 + properties_size != size:
        return False
    item.properties = Slice(at + 2, properties_size)
    next[0] += size
    return True
