# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE as they lie in received bytes, JSON or binary header.

A send is plain if the broker interprets none of its properties (`model.properties`): no delay, no
timer, no retry. A single message may be a half message (`_transactions`).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from bolide.kernel._bytes cimport u32
from bolide.kernel._fields cimport Slice
from bolide.kernel._layouts cimport MAX_PROPERTIES_SIZE, PREPARED
from bolide.kernel._header cimport (
    Field,
    Header,
    named,
    number_of,
    read_binary_header,
    read_header,
    unescape,
)
from bolide.kernel._names cimport Named, find_named
from bolide.broker.fast_path._output cimport Output, reserve
from bolide.broker.fast_path._properties cimport Prefixes, is_id, is_interpreted
from bolide.broker.fast_path._transactions cimport is_plain_half

cdef enum:
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    MAX_JSON_HEADER = 1024 * 1024
    NOT_PLAIN_FLAGS = ~0x705  # how a body is compressed, and of a transaction
    ITEM_HEAD = 20  # of a message in a batch, up to its body
    LETTERS = 14  # the names of the fields, a to n


cdef struct Send:
    Py_ssize_t end
    int64_t code
    int64_t opaque
    bint binary  # encoding of the header, and of the reply
    bint one_way
    bint is_half
    bint has_group  # PGROUP is among its properties
    Slice access_key  # as presented; its address is NULL if there is none
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


cdef inline bint read_frame(const uint8_t *start, Py_ssize_t left, Send *send, Header *header) noexcept nogil:
    """Read the header of a frame and find its body; False if it is incomplete or unusual."""
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


cdef inline bint is_credential(Field *field) noexcept nogil:
    return (
        named(field.name, b"AccessKey", 9)
        or named(field.name, b"Signature", 9)
        or named(field.name, b"SecurityToken", 13)
    )


cdef inline bint find_access_key(Header *header, Slice *access_key) noexcept nogil:
    """Find the access key that a request presents, if any; False if that is unusual."""
    cdef Field *field
    cdef int i
    cdef bint has_others = False
    access_key[0] = Slice(NULL, 0)
    for i in range(header.count):
        field = &header.fields[i]
        if field.name.size < 9 or not is_credential(field):
            continue
        if not field.quoted or field.escaped:
            return False
        if field.name.at[0] == 0x41:  # A
            access_key[0] = field.value
        else:
            has_others = True
    return access_key.at != NULL or not has_others


cdef enum Reading:
    PLAIN
    UNUSUAL  # fields that are missing, unknown or written in an unusual way
    INTERPRETED  # properties that the broker interprets


cdef inline Reading read_send(
    Header *header, Send *send, Output *scratch, const Prefixes *interpreted, const Prefixes *set_by_broker
) except? UNUSUAL:
    """Read the fields of a send, of which `read_frame` has read the header."""
    cdef Field *letters[LETTERS]
    cdef Field *field
    cdef int64_t number
    cdef int i
    cdef int unique_ids = 0
    cdef bint batch, has_credentials = False
    if header.code != SEND_MESSAGE_V2 and header.code != SEND_BATCH_MESSAGE or header.flag & 1:
        return UNUSUAL
    if send.body.size == 0:
        return UNUSUAL
    memset(letters, 0, sizeof(letters))
    for i in range(header.count):
        field = &header.fields[i]
        if field.name.size != 1:
            if not is_credential(field):
                return UNUSUAL
            has_credentials = True
            continue
        if not 0x61 <= field.name.at[0] < 0x61 + LETTERS:
            return UNUSUAL
        letters[field.name.at[0] - 0x61] = field
    send.access_key = Slice(NULL, 0)
    if has_credentials and not find_access_key(header, &send.access_key):
        return UNUSUAL
    send.code, send.opaque, send.one_way = header.code, header.opaque, header.flag & 2 != 0
    for i in (0, 1, 2):  # group, topic, default topic
        if letters[i] == NULL or not letters[i].quoted or letters[i].escaped:
            return UNUSUAL
    send.group, send.topic = letters[0].value, letters[1].value
    if not int_field(letters[3], &number):
        return UNUSUAL
    if not int_field(letters[4], &number) or number < 0:
        return UNUSUAL
    send.queue_id = <int32_t>number
    if not int_field(letters[5], &number) or number & NOT_PLAIN_FLAGS:
        return UNUSUAL
    send.sys_flag = <uint32_t>number
    if letters[6] == NULL or not number_of(letters[6].value, -(1 << 62), 1 << 62, &send.born_timestamp):
        return UNUSUAL
    if not int_field(letters[7], &number):
        return UNUSUAL
    send.flag = <int32_t>number
    if letters[9] != NULL and (not int_field(letters[9], &number) or number):  # reconsume times
        return UNUSUAL
    if letters[10] != NULL and not is_word(letters[10], b"false", 5):  # unit mode
        return UNUSUAL
    if letters[11] != NULL and not int_field(letters[11], &number):
        return UNUSUAL
    batch = letters[12] != NULL and is_word(letters[12], b"true", 4)
    if not batch and letters[12] != NULL and not is_word(letters[12], b"false", 5):
        return UNUSUAL
    if batch != (header.code == SEND_BATCH_MESSAGE):
        return UNUSUAL
    if letters[13] != NULL and (not letters[13].quoted or letters[13].escaped):
        return UNUSUAL
    send.properties.size = send.named.unique_id.size = 0
    send.properties.at = send.body.at
    field = letters[8]
    if field != NULL:
        if not field.quoted:
            return UNUSUAL
        send.properties = field.value
        if field.escaped and not send.binary:
            scratch.size = 0
            reserve(scratch, field.value.size)
            send.properties.size = unescape(field.value, scratch.data)
            send.properties.at = scratch.data
            if send.properties.size < 0:
                return UNUSUAL
            field.value, field.escaped = send.properties, False  # as the signature needs it
    send.is_half = False
    if is_interpreted(send.properties, interpreted, &unique_ids):
        if batch or send.group.size == 0:
            return INTERPRETED
        if not is_plain_half(send.properties, interpreted, set_by_broker, &send.has_group):
            return INTERPRETED
        send.is_half = True
        find_named(send.properties, &send.named)
        return PLAIN
    if send.sys_flag & PREPARED:
        return UNUSUAL  # the flag of a half message without its property
    if batch:
        return PLAIN if send.sys_flag == 0 else UNUSUAL
    find_named(send.properties, &send.named)
    return PLAIN if unique_ids == 1 and is_id(send.named.unique_id) else UNUSUAL


cdef inline bint int_field(Field *field, int64_t *number) noexcept nogil:
    return field != NULL and number_of(field.value, -(1 << 31), (1 << 31) - 1, number)


cdef inline bint is_word(Field *field, const char *word, Py_ssize_t size) noexcept nogil:
    return field.value.size == size and memcmp(field.value.at, word, size) == 0


cdef inline bint read_item(const uint8_t **next, const uint8_t *end, Item *item) noexcept nogil:
    """Step over one message of a batch (`protocol.batch`); False if its lengths do not add up."""
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
    if properties_size > MAX_PROPERTIES_SIZE or ITEM_HEAD + body_size + 2 + properties_size != size:
        return False
    item.properties = Slice(at + 2, properties_size)
    next[0] += size
    return True
