# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Half messages and END_TRANSACTION requests: what the fast path can serve of them.

A half message is served if it is sent alone and the broker interprets none of its other properties;
an END_TRANSACTION if it commits or rolls back a half message near the end of the log.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from bolide.kernel._fields cimport Fields, Slice, cut
from bolide.kernel._layouts cimport BORN_V6, COMMIT, MAGIC_V1, PREPARED, ROLLBACK, STORE_V6
from bolide.kernel._header cimport Field, Header, named, number_of
from bolide.broker.fast_path._properties cimport (
    Pairs,
    Prefixes,
    begins,
    cut_pairs,
    has_prefix,
    is_id,
    is_named,
)

cdef enum:
    BODY_FLAGS = 0x701  # how a body is compressed

cdef struct End:
    Slice group
    Slice topic  # its address is NULL if there is none
    int64_t queue_offset
    int64_t physical_offset
    int64_t state

cdef struct Half:
    Fields fields
    Slice group
    Slice topic
    int64_t queue_id
    Slice unique_id
    Slice keys
    Slice tags
    bint has_dedup_key


cdef inline bint is_plain_half(
    Slice text, const Prefixes *interpreted, const Prefixes *set_by_broker, bint *has_group
) noexcept nogil:
    """Whether these are the properties of a half message that uses no other feature."""
    cdef Pairs pairs
    cdef Slice name, value, unique_id
    cdef const uint8_t *end
    cdef bint found = False
    cdef int i
    if not cut_pairs(text, &pairs):
        return False
    has_group[0], unique_id.size = False, 0
    for i in range(pairs.count):
        name, value = pairs.names[i], pairs.values[i]
        end = name.at + name.size
        if is_named(name, b"TRAN_MSG", 8):
            if not is_named(value, b"true", 4):
                return False
            found = True
        elif is_named(name, b"UNIQ_KEY", 8):
            unique_id = value
        elif is_named(name, b"PGROUP", 6):
            has_group[0] = True
        elif begins(name.at, end, b"UNIQ_KEY", 8):
            return False
        elif has_prefix(name.at, end, set_by_broker) or has_prefix(name.at, end, interpreted):
            return False
    return found and is_id(unique_id)


cdef inline bint read_end(Header *header, End *end) noexcept nogil:
    """Read an END_TRANSACTION; False if a field is missing or unusual."""
    cdef Field *field
    cdef int i, seen = 0
    if header.flag & 1:
        return False
    end.topic = Slice(NULL, 0)
    for i in range(header.count):
        field = &header.fields[i]
        if named(field.name, b"producerGroup", 13):
            end.group = field.value
            if not is_text(field):
                return False
            seen |= 1
        elif named(field.name, b"tranStateTableOffset", 20):
            if not number_of(field.value, 0, 1 << 62, &end.queue_offset):
                return False
            seen |= 2
        elif named(field.name, b"commitLogOffset", 15):
            if not number_of(field.value, 0, 1 << 62, &end.physical_offset):
                return False
            seen |= 4
        elif named(field.name, b"commitOrRollback", 16):
            if not number_of(field.value, 0, ROLLBACK, &end.state):
                return False
            seen |= 8
        elif named(field.name, b"msgId", 5):
            if not is_text(field):
                return False
            seen |= 16
        elif named(field.name, b"fromTransactionCheck", 20):
            if not (named(field.value, b"true", 4) or named(field.value, b"false", 5)):
                return False
        elif not is_text(field):
            return False
        elif named(field.name, b"topic", 5):
            end.topic = field.value
    return seen == 31 and (end.state == COMMIT or end.state == ROLLBACK)


cdef inline bint is_text(Field *field) noexcept nogil:
    return field.quoted and not field.escaped


cdef inline bint read_half(
    const uint8_t *at, Py_ssize_t left, Slice half_topic, const Prefixes *special, Half *half
) noexcept nogil:
    """Read the half message at `at`; False if something else is there, or it uses a feature."""
    cdef Fields *fields = &half.fields
    cdef Pairs pairs
    cdef Slice name, value
    cdef int i, seen = 0
    if not cut(at, left, fields) or fields.magic != MAGIC_V1:
        return False
    if fields.sys_flag & ~(BODY_FLAGS | BORN_V6 | STORE_V6):
        return False
    if not is_named(fields.topic, <const char *>half_topic.at, half_topic.size):
        return False
    if fields.properties.size == 0 or fields.properties.at[fields.properties.size - 1] != 2:
        return False
    if not cut_pairs(fields.properties, &pairs):
        return False
    memset(&half.group, 0, sizeof(Slice))
    half.unique_id = half.keys = half.tags = half.group
    half.has_dedup_key = False
    for i in range(pairs.count):
        name, value = pairs.names[i], pairs.values[i]
        if is_named(name, b"PGROUP", 6):
            half.group = value
            seen |= 1
        elif is_named(name, b"REAL_TOPIC", 10):
            half.topic = value
            seen |= 2
        elif is_named(name, b"REAL_QID", 8):
            if not number_of(value, 0, (1 << 31) - 1, &half.queue_id):
                return False
            seen |= 4
        elif is_named(name, b"UNIQ_KEY", 8):
            half.unique_id = value
        elif is_named(name, b"KEYS", 4):
            half.keys = value
        elif is_named(name, b"TAGS", 4):
            half.tags = value
        elif is_named(name, b"DEDUP_KEY", 9):
            half.has_dedup_key = True
        elif has_prefix(name.at, name.at + name.size, special):
            return False
    return seen == 7

