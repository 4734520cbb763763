# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `send_frames`, which documents classes and functions.

It may skip a reply that the plain-Python version would decode, but never decodes more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from bolide.kernel._bytes cimport MAX_DIGITS, put32, u32, write_number
from bolide.kernel._header cimport Field, Header, number_of, read_header
from bolide.kernel._sha1 cimport Sha1
from bolide.kernel._signatures cimport SigningKey

from bolide.kernel.send_frames import (
    ANSWERED,
    END,
    MIDDLE,
    ONE_WAY,
    credentials_part,
    signed_parts,
    template_parts,
)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef bytes _answered = ANSWERED
cdef bytes _one_way = ONE_WAY
cdef bytes _middle = MIDDLE
cdef bytes _end = END

cdef enum:
    MAX_JSON_HEADER = 1024 * 1024
    SIGNATURE_SIZE = 28


cdef inline uint8_t *put(uint8_t *at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline uint8_t short_escape(uint8_t letter) noexcept nogil:
    """The letter of the short JSON escape of a character, or 0 if it has none."""
    if letter == 0x22 or letter == 0x5C:
        return letter
    if letter == 0x0A:
        return 0x6E
    if letter == 0x0D:
        return 0x72
    if letter == 0x09:
        return 0x74
    if letter == 0x08:
        return 0x62
    if letter == 0x0C:
        return 0x66
    return 0


cdef Py_ssize_t quoted_size(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Size of a text as JSON string, including quotes."""
    cdef Py_ssize_t total = size + 2, i
    for i in range(size):
        if text[i] < 0x20 or text[i] == 0x22 or text[i] == 0x5C:
            total += 1 if short_escape(text[i]) else 5
    return total


cdef uint8_t *put_quoted(uint8_t *at, const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef const char *digits = b"0123456789abcdef"
    cdef Py_ssize_t i
    cdef uint8_t letter
    at[0] = 0x22
    at += 1
    for i in range(size):
        letter = text[i]
        if letter >= 0x20 and letter != 0x22 and letter != 0x5C:
            at[0] = letter
            at += 1
            continue
        at[0] = 0x5C
        if short_escape(letter):
            at[1] = short_escape(letter)
            at += 2
        else:
            memcpy(at + 1, b"u00", 3)
            at[4], at[5] = digits[letter >> 4], digits[letter & 15]
            at += 6
    at[0] = 0x22
    return at + 1


cdef class SendTemplate:
    cdef bytes head
    cdef bytes queue
    cdef bytes credentials
    cdef bytes signed_last
    cdef SigningKey key
    cdef Sha1 begun  # the signature, up to what differs between messages

    def __init__(self, common, queue_id, broker_name, credentials=None):
        cdef bytes first
        self.head, self.queue = template_parts(common, queue_id, broker_name)
        if credentials is not None:
            self.credentials = credentials_part(credentials)
            first, self.signed_last = signed_parts(common, queue_id, broker_name, credentials)
            self.key = SigningKey(credentials.secret)
            self.key.begin(&self.begun)
            self.key.update(&self.begun, <const uint8_t *>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))

    def write(
        self,
        int64_t opaque,
        int64_t born_timestamp,
        int64_t flag,
        str properties,
        bytes body,
        *,
        bint one_way=False,
    ):
        cdef Py_ssize_t text_size, size
        cdef const uint8_t *text = <const uint8_t *>PyUnicode_AsUTF8AndSize(properties, &text_size)
        cdef bytes kind = _one_way if one_way else _answered
        cdef uint8_t flag_digits[MAX_DIGITS]
        cdef uint8_t born_digits[MAX_DIGITS]
        cdef uint8_t opaque_digits[MAX_DIGITS]
        cdef Py_ssize_t flag_size = write_number(flag, flag_digits)
        cdef Py_ssize_t born_size = write_number(born_timestamp, born_digits)
        cdef Py_ssize_t opaque_size = write_number(opaque, opaque_digits)
        cdef Py_ssize_t signature_size = 0
        cdef Sha1 sha
        cdef uint8_t *at
        cdef bytes frame
        if self.key is not None:
            signature_size = PyBytes_GET_SIZE(self.credentials) + SIGNATURE_SIZE
        size = (
            PyBytes_GET_SIZE(self.head) + flag_size + PyBytes_GET_SIZE(_middle)
            + quoted_size(text, text_size) + PyBytes_GET_SIZE(self.queue) + born_size
            + signature_size + PyBytes_GET_SIZE(kind) + opaque_size + PyBytes_GET_SIZE(_end)
        )
        if 4 + size + PyBytes_GET_SIZE(body) > 0xFFFFFFFF:
            raise OverflowError("a frame is of less than 4 GiB")
        frame = PyBytes_FromStringAndSize(NULL, 8 + size + PyBytes_GET_SIZE(body))
        at = <uint8_t *>PyBytes_AS_STRING(frame)
        put32(at, <uint64_t>(4 + size + PyBytes_GET_SIZE(body)))
        put32(at + 4, <uint64_t>size)
        at = put(at + 8, self.head)
        memcpy(at, flag_digits, flag_size)
        at = put(at + flag_size, _middle)
        at = put_quoted(at, text, text_size)
        at = put(at, self.queue)
        memcpy(at, born_digits, born_size)
        at += born_size
        if self.key is not None:
            sha = self.begun
            self.key.update(&sha, born_digits, born_size)
            self.key.update(&sha, flag_digits, flag_size)
            self.key.update(&sha, text, text_size)
            self.key.update(
                &sha, <const uint8_t *>PyBytes_AS_STRING(self.signed_last), PyBytes_GET_SIZE(self.signed_last)
            )
            self.key.update(&sha, <const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
            at = put(at, self.credentials)
            self.key.write(&sha, at)
            at += SIGNATURE_SIZE
        at = put(at, kind)
        memcpy(at, opaque_digits, opaque_size)
        at = put(at + opaque_size, _end)
        put(at, body)
        return frame


cdef inline bint is_name(Field *field, const char *name, Py_ssize_t size) noexcept nogil:
    return field.name.size == size and memcmp(field.name.at, name, size) == 0


cdef inline bint is_word(Field *field, const char *word, Py_ssize_t size) noexcept nogil:
    return field.value.size == size and memcmp(field.value.at, word, size) == 0


cdef inline str text_of(Field *field):
    return PyUnicode_DecodeASCII(<const char *>field.value.at, field.value.size, NULL)


cdef tuple read_answer(const uint8_t *start, Py_ssize_t size, wanted):
    """Decode a reply whose header fills the bytes exactly; None unless it is a common one."""
    cdef Header header
    cdef Field *field
    cdef Field *message_id = NULL
    cdef Field *transaction_id = NULL
    cdef Field *region = NULL
    cdef int64_t queue_id = 0, queue_offset = 0
    cdef bint has_queue = False, has_offset = False, trace_on = True
    cdef int i
    if not read_header(start, size, &header) or header.code != 0 or not header.flag & 1:
        return None
    for i in range(header.count):
        field = &header.fields[i]
        if not field.quoted or field.escaped:
            return None
        if is_name(field, b"msgId", 5):
            message_id = field
        elif is_name(field, b"queueId", 7):
            has_queue = number_of(field.value, -(1 << 31), (1 << 31) - 1, &queue_id)
        elif is_name(field, b"queueOffset", 11):
            has_offset = number_of(field.value, -(1 << 62), 1 << 62, &queue_offset)
        elif is_name(field, b"transactionId", 13):
            transaction_id = field
        elif is_name(field, b"MSG_REGION", 10):
            region = field
        elif is_name(field, b"TRACE_ON", 8):
            trace_on = is_word(field, b"true", 4)
            if not trace_on and not is_word(field, b"false", 5):
                return None
        else:
            return None
    if message_id == NULL or not has_queue or not has_offset:
        return None
    opaque = header.opaque
    if opaque not in wanted:
        return None
    return (
        opaque,
        text_of(message_id),
        queue_id,
        queue_offset,
        None if transaction_id == NULL else text_of(transaction_id),
        "DefaultRegion" if region == NULL else text_of(region),
        True if trace_on else False,
    )


def read_answers(bytes data, Py_ssize_t position, wanted):
    cdef Py_ssize_t left
    cdef int64_t length, header_size
    cdef const uint8_t *at
    cdef list found = []
    cdef tuple answer
    if position < 0:
        raise ValueError(f"position {position} is below 0")
    while True:
        left = PyBytes_GET_SIZE(data) - position
        if left < 8:
            break
        at = <const uint8_t *>PyBytes_AS_STRING(data) + position
        length, header_size = u32(at), u32(at + 4)
        if length > left - 4 or header_size + 4 != length or header_size > MAX_JSON_HEADER:
            break
        answer = read_answer(at + 8, header_size, wanted)
        if answer is None:
            break
        found.append(answer)
        position += 4 + length
    return position, found
