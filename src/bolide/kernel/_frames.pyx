# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `protocol.framing` for frames with a binary header (`binary_fields`).

JSON headers and unusual or invalid frames are passed to `protocol.framing`, which raises the errors.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from bolide.kernel._bytes cimport put32, u32

from bolide.protocol import framing
from bolide.protocol.frame import Frame, HeaderEncoding, Language

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    PREFIX = 4
    BINARY = 1
    HEAD = 17  # up to the remark
    MAX_HEADER = 1024 * 1024
    MOST_FIELDS = 1024
    MAX_KEY = 0x7FFF

cdef object ROCKETMQ = HeaderEncoding.ROCKETMQ
cdef object make_frame = Frame
cdef object decode_slowly = framing.decode_frame
cdef object encode_slowly = framing.encode_frame
cdef list LANGUAGES = [
    Language(number).name if number in set(Language) else "OTHER" for number in range(256)
]
cdef dict NUMBERS = {language.name: int(language) for language in Language}
cdef int OTHER = Language.OTHER


def decode_frame(bytes payload not None):
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), header_size, remark_size, fields_size
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef dict fields = None
    cdef str remark = None
    if size < PREFIX or start[0] != BINARY:
        return decode_slowly(payload)
    header_size = u32(start) & 0xFFFFFF
    if header_size > MAX_HEADER or header_size > size - PREFIX or header_size < HEAD + 4:
        return decode_slowly(payload)
    at = start + PREFIX
    end = at + header_size
    remark_size = <int32_t>u32(at + HEAD - 4)
    if remark_size < 0 or remark_size > header_size - HEAD - 4:
        return decode_slowly(payload)
    fields_size = <int32_t>u32(at + HEAD + remark_size)
    if fields_size < 0 or fields_size > header_size - HEAD - 4 - remark_size:
        return decode_slowly(payload)
    if remark_size:
        remark = text_of(at + HEAD, remark_size)
    if fields_size:
        fields = read_fields(at + HEAD + remark_size + 4, fields_size)
        if fields is None:
            return decode_slowly(payload)
    return make_frame(
        code=<int16_t>(at[0] << 8 | at[1]),
        fields=fields,
        flag=<int32_t>u32(at + 9),
        language=LANGUAGES[at[2]],
        opaque=<int32_t>u32(at + 5),
        remark=remark,
        version=<int16_t>(at[3] << 8 | at[4]),
        body=PyBytes_FromStringAndSize(<const char *>end, start + size - end),
        encoding=ROCKETMQ,
    )


cdef inline str text_of(const uint8_t *at, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>at, size, b"replace")


cdef dict read_fields(const uint8_t *at, Py_ssize_t left):
    """Decode fields; None unless they fill the bytes exactly."""
    cdef dict fields = {}
    cdef Py_ssize_t size
    cdef int count = 0
    cdef str key
    while left > 0:
        if left < 2 or count == MOST_FIELDS:
            return None
        size = <int16_t>(at[0] << 8 | at[1])
        if size < 0 or left - 2 < size + 4:
            return None
        key = text_of(at + 2, size)
        at += 2 + size
        left -= 2 + size
        size = <int32_t>u32(at)
        if size < 0 or size > left - 4:
            return None
        if size:
            fields[key] = text_of(at + 4, size)
        at += 4 + size
        left -= 4 + size
        count += 1
    return fields


def encode_frame(frame not None):
    if frame.encoding is not ROCKETMQ:
        return encode_slowly(frame)
    try:
        return write_frame(frame)
    except (OverflowError, TypeError, UnicodeEncodeError, ValueError):
        return encode_slowly(frame)


cdef bytes write_frame(object frame):
    """Encode a common frame; raises an exception that `encode_frame` catches for any other."""
    cdef int32_t opaque = frame.opaque, flag = frame.flag
    cdef int64_t code = frame.code, version = frame.version
    cdef int language = NUMBERS.get(frame.language, OTHER)
    cdef dict fields = frame.fields
    cdef bytes body = frame.body, whole
    cdef object remark = frame.remark
    cdef Py_ssize_t remark_size = 0, fields_size = 0, header_size, key_size, text_size
    cdef const char *remark_at = NULL
    cdef const char *key_at
    cdef const char *text_at
    cdef uint8_t *at
    if body is None:
        raise TypeError
    if remark is not None:
        remark_at = PyUnicode_AsUTF8AndSize(remark, &remark_size)
    if fields:
        for key, text in fields.items():
            PyUnicode_AsUTF8AndSize(key, &key_size)
            PyUnicode_AsUTF8AndSize(text, &text_size)
            if key_size > MAX_KEY:
                raise ValueError
            fields_size += 6 + key_size + text_size
    header_size = HEAD + remark_size + 4 + fields_size
    if header_size > 0xFFFFFF:
        raise ValueError
    whole = PyBytes_FromStringAndSize(NULL, 8 + header_size + PyBytes_GET_SIZE(body))
    at = <uint8_t *>PyBytes_AS_STRING(whole)
    put32(at, <uint32_t>(4 + header_size + PyBytes_GET_SIZE(body)))
    put32(at + 4, <uint32_t>BINARY << 24 | <uint32_t>header_size)
    put16(at + 8, code)
    at[10] = <uint8_t>language
    put16(at + 11, version)
    put32(at + 13, <uint32_t>opaque)
    put32(at + 17, <uint32_t>flag)
    put32(at + 21, <uint32_t>remark_size)
    at += 25
    if remark_size:
        memcpy(at, remark_at, remark_size)
    put32(at + remark_size, <uint32_t>fields_size)
    at += remark_size + 4
    if fields:
        for key, text in fields.items():
            key_at = PyUnicode_AsUTF8AndSize(key, &key_size)
            text_at = PyUnicode_AsUTF8AndSize(text, &text_size)
            put16(at, key_size)
            memcpy(at + 2, key_at, key_size)
            put32(at + 2 + key_size, <uint32_t>text_size)
            memcpy(at + 6 + key_size, text_at, text_size)
            at += 6 + key_size + text_size
    memcpy(at, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    return whole


cdef inline void put16(uint8_t *at, int64_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 8)
    at[1] = <uint8_t>number
