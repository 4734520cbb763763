# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `gathering`, which documents the functions."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from bolide.kernel._bytes cimport u32, u64
from bolide.kernel._fields cimport Fields, cut
from bolide.kernel._layouts cimport MAGIC_V1, MAGIC_V2, OFFSET_AT, UNIT_SIZE
from bolide.kernel._sieves cimport UNSURE, YES, Sieve

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
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

cdef enum:
    MAX_PAGES = 1024
    HEAD_SIZE = 36  # up to and including the physical offset


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
                distance = <uint64_t>place - <uint64_t>start  # unsigned: may overflow a signed integer
                if told > log.len or distance > <uint64_t>(log.len - told):
                    break
                begin = <int64_t>distance
                head = <const uint8_t *>log.buf + begin
                if u32(head) != <uint32_t>told or <int64_t>u64(head + OFFSET_AT) != place:
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


def is_resident(view, Py_ssize_t at, Py_ssize_t size):
    cdef Py_buffer source
    cdef unsigned char pages[MAX_PAGES]
    cdef bint found = False
    PyObject_GetBuffer(view, &source, PyBUF_SIMPLE)
    if 0 <= at and 0 < size <= source.len and at <= source.len - size:
        found = resident(<uintptr_t>source.buf + at, size, pages, MAX_PAGES)
    PyBuffer_Release(&source)
    return found
