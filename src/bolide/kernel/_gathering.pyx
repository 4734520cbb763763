# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `gathering`, where everything is described."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from bolide.kernel._bytes cimport u32, u64
from bolide.kernel._fields cimport MAGIC_V1, MAGIC_V2, Fields, cut
from bolide.kernel._sieves cimport UNSURE, YES, Sieve

cdef enum:
    UNIT_SIZE = 20
    HEAD_SIZE = 36  # up to and with the physical offset
    PLACE_AT = 28


def gather(
    units, Py_ssize_t first, block, int64_t start, int64_t count, int64_t size, Sieve sieve=None
):
    cdef Py_buffer source, log
    cdef list found = []
    cdef int64_t taken = 0, looked = 0, begin, place
    cdef uint64_t distance
    cdef int32_t told
    cdef Py_ssize_t at, end
    cdef const uint8_t *unit
    cdef const uint8_t *head
    cdef Fields fields
    cdef int verdict = YES
    PyObject_GetBuffer(units, &source, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(block, &log, PyBUF_SIMPLE)
        try:
            at, end = first * UNIT_SIZE, source.len - UNIT_SIZE
            while 0 <= at <= end and len(found) < count:
                unit = <const uint8_t *>source.buf + at
                place, told = <int64_t>u64(unit), <int32_t>u32(unit + 8)
                if told < HEAD_SIZE or taken + told > size or place < start:
                    break
                distance = <uint64_t>place - <uint64_t>start  # too far for a signed one
                if told > log.len or distance > <uint64_t>(log.len - told):
                    break
                begin = <int64_t>distance
                head = <const uint8_t *>log.buf + begin
                if u32(head) != <uint32_t>told or <int64_t>u64(head + PLACE_AT) != place:
                    break
                if u32(head + 4) != MAGIC_V1 and u32(head + 4) != MAGIC_V2:
                    break
                if sieve is not None:
                    if not cut(head, told, &fields):
                        break
                    verdict = sieve.test.judge(fields.properties)
                    if verdict == UNSURE:
                        break
                if verdict == YES:
                    found.append(block[begin : begin + told])
                    taken += told
                looked += 1
                at += UNIT_SIZE
        finally:
            PyBuffer_Release(&log)
    finally:
        PyBuffer_Release(&source)
    return found, taken, looked
