# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled version of `signatures`, which documents the class.

It may take a signature for wrong that the plain-Python version finds right, in headers that clients
do not usually write, but never the other way round.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from bolide.kernel._bytes cimport u32
from bolide.kernel._fields cimport Slice
from bolide.kernel._header cimport (
    Field,
    Header,
    named,
    read_binary_header,
    read_header,
    unescape,
)
from bolide.kernel._sha1 cimport Sha1, sha1_begin, sha1_finish, sha1_init, sha1_update

from bolide.protocol import signature as names

cdef enum:
    BLOCK = 64
    DIGEST = 20
    SIGNATURE_SIZE = 28
    MAX_ESCAPED = 2048  # of a value with escapes
    MAX_JSON_HEADER = 1024 * 1024

if (names.SIGNATURE, names.UNSIGNED) != ("Signature", "_UNIQUE_KEY_QUERY"):
    raise RuntimeError("the names of the fields of a signature are compiled in")

sha1_init(True)

cdef const char *LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def use_sha_extensions(bint on):
    """Switch to the portable SHA-1 and back, for tests."""
    sha1_init(on)


cdef class SigningKey:
    def __init__(self, bytes secret not None):
        cdef uint8_t pad[BLOCK]
        cdef uint8_t key[BLOCK]
        cdef Sha1 sha
        cdef int i
        for i in range(BLOCK):
            key[i] = 0
        if PyBytes_GET_SIZE(secret) > BLOCK:
            sha1_begin(&sha)
            sha1_update(&sha, <const uint8_t *>PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))
            sha1_finish(&sha, key)
        else:
            memcpy(key, PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))
        for i in range(BLOCK):
            pad[i] = key[i] ^ 0x36
        sha1_begin(&sha)
        sha1_update(&sha, pad, BLOCK)
        memcpy(self.inner, sha.state, sizeof(self.inner))
        for i in range(BLOCK):
            pad[i] = key[i] ^ 0x5C
        sha1_begin(&sha)
        sha1_update(&sha, pad, BLOCK)
        memcpy(self.outer, sha.state, sizeof(self.outer))

    cdef void begin(self, Sha1 *sha) noexcept nogil:
        """Begin to sign: what is signed follows by `update`."""
        memcpy(sha.state, self.inner, sizeof(self.inner))
        sha.size = BLOCK

    cdef void update(self, Sha1 *sha, const uint8_t *at, Py_ssize_t size) noexcept nogil:
        sha1_update(sha, at, size)

    cdef void write(self, Sha1 *sha, uint8_t *signature) noexcept nogil:
        """Write the 28 characters of the signature."""
        cdef uint8_t digest[DIGEST + 1]
        cdef uint32_t three
        cdef int i
        sha1_finish(sha, digest)
        memcpy(sha.state, self.outer, sizeof(self.outer))
        sha.size = BLOCK
        sha1_update(sha, digest, DIGEST)
        sha1_finish(sha, digest)
        digest[DIGEST] = 0
        for i in range(7):
            three = <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8 | digest[3 * i + 2]
            signature[4 * i] = LETTERS[three >> 18]
            signature[4 * i + 1] = LETTERS[three >> 12 & 63]
            signature[4 * i + 2] = LETTERS[three >> 6 & 63]
            signature[4 * i + 3] = LETTERS[three & 63]
        signature[SIGNATURE_SIZE - 1] = 0x3D

    def sign(self, bytes content not None):
        cdef Sha1 sha
        cdef uint8_t found[SIGNATURE_SIZE]
        self.begin(&sha)
        sha1_update(&sha, <const uint8_t *>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
        self.write(&sha, found)
        return PyBytes_FromStringAndSize(<const char *>found, SIGNATURE_SIZE)

    def is_signed(self, bytes data not None, Py_ssize_t position):
        cdef Header header
        cdef Slice body
        cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data) + position
        cdef Py_ssize_t left = PyBytes_GET_SIZE(data) - position
        cdef int64_t length, size
        cdef bint binary, is_read
        if position < 0 or left < 8:
            return False
        length, size, binary = u32(at), u32(at + 4), at[4] == 1
        if binary:
            size &= 0xFFFFFF
        if length > left - 4 or size > MAX_JSON_HEADER or size + 4 > length:
            return False
        body = Slice(at + 8 + size, length - 4 - size)
        is_read = read_binary_header(at + 8, size, &header) if binary else read_header(at + 8, size, &header)
        return is_read and self.is_right(&header, binary, body)

    cdef bint is_right(self, Header *header, bint binary, Slice body) noexcept nogil:
        """Whether a request is signed with this key. A field with escapes is decoded, if JSON."""
        cdef Sha1 sha
        cdef Field *field
        cdef Slice given = Slice(NULL, 0)
        cdef uint8_t expected[SIGNATURE_SIZE]
        cdef uint8_t text[MAX_ESCAPED]
        cdef Py_ssize_t size, i
        cdef uint8_t difference = 0
        if not self.put_in_order(header):
            return False
        self.begin(&sha)
        for i in range(header.count):
            field = &header.fields[self.order[i]]
            if not field.quoted:
                return False
            if named(field.name, b"Signature", 9):
                given = field.value
            elif named(field.name, b"_UNIQUE_KEY_QUERY", 17):
                return False  # signed or not, by the version of the client
            elif field.escaped and not binary:
                size = unescape(field.value, text) if field.value.size <= MAX_ESCAPED else -1
                if size < 0:
                    return False
                sha1_update(&sha, text, size)
            else:
                sha1_update(&sha, field.value.at, field.value.size)
        if given.size != SIGNATURE_SIZE:
            return False
        sha1_update(&sha, body.at, body.size)
        self.write(&sha, expected)
        for i in range(SIGNATURE_SIZE):  # all of them: the time taken says nothing
            difference |= expected[i] ^ given.at[i]
        return difference == 0

    cdef bint put_in_order(self, Header *header) noexcept nogil:
        """Find the order of the fields by name; False if a name is not ASCII.

        Clients write fields in the same order each time: it begins with that of the last request.
        """
        cdef int i, at
        cdef uint8_t number
        cdef Slice name
        cdef Py_ssize_t letter
        if self.count != header.count:
            self.count = header.count
            for i in range(header.count):
                self.order[i] = i
        for i in range(header.count):
            number, at = self.order[i], i
            name = header.fields[number].name
            for letter in range(name.size):
                if name.at[letter] >= 0x80:
                    return False
            while at > 0 and is_before(name, header.fields[self.order[at - 1]].name):
                self.order[at] = self.order[at - 1]
                at -= 1
            self.order[at] = number
        return True


cdef inline bint is_before(Slice one, Slice other) noexcept nogil:
    cdef int order
    if one.size and other.size and one.at[0] != other.at[0]:
        return one.at[0] < other.at[0]
    order = memcmp(one.at, other.at, min(one.size, other.size))
    return order < 0 or order == 0 and one.size < other.size
