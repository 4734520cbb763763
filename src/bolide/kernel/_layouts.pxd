# cython: language_level=3
"""Sizes and numbers of files and records that compiled code spells out.

Python modules define them (`protocol.record`, `protocol.hosts`, `protocol.record_seal`,
`kernel.units`, `kernel.index_entries`, `model.message`, `model.properties`); `_records` compares the
two at import. Compiled code takes them from here and defines none again.
"""

from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #define BOLIDE_MAGIC_V1 0xDAA320A7u
    #define BOLIDE_MAGIC_V2 0xDAA320ABu
    """
    const uint32_t MAGIC_V1 "BOLIDE_MAGIC_V1"
    const uint32_t MAGIC_V2 "BOLIDE_MAGIC_V2"

cdef enum:
    FIXED_SIZE = 72  # of a record up to and including the body length, without the hosts
    OFFSET_AT = 28  # the physical offset in a record
    V4_SIZE = 8
    V6_SIZE = 20
    MAX_V1_TOPIC_SIZE = 0x7F
    MAX_PROPERTIES_SIZE = 0x7FFF
    SEAL_SIZE = 20
    UNIT_SIZE = 20
    BLANK_SIZE = 0x7FFFFFFF
    HEADER_SIZE = 40  # of an index file
    SLOT_SIZE = 4
    ENTRY_SIZE = 20
    ITEM_SIZE = 20  # of a key, as in `kernel.Scan.keys`
    COMPRESSED = 0x1
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    INNER_BATCH = 0x80
    WRAPPED = 0xC0  # both bits of an inner batch that is to be unwrapped
    INT_DIGITS = 9
    LONG_DIGITS = 18
