"""Writes trace files (docs/formats/trace.md), with libzstd and libxxhash, which `ebb` needs, too.

    write("run.ebbt", [(time_ns, ALLOC, 1, 1 << 20), (time_ns, MARK, LAYER, 1), ...])

An event of a mark has the mark in place of a block, and its value in place of a size."""
import ctypes
import struct

ALLOC, FREE, ACCESS, MARK = 1, 2, 3, 5
READ, WRITE = 1, 2
LAYER, PHASE, TRACE_ON = 2, 3, 4
FORWARD, BACKWARD, UPDATE = 1, 2, 3

ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_compressBound.restype = ZSTD.ZSTD_compress.restype = ctypes.c_size_t
ZSTD.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
ZSTD.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
                               ctypes.c_int]
XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checked(data):
    return data + struct.pack("<Q", XXHASH.XXH3_64bits(data, len(data)))


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def steps(values):
    """Differences, positive ones as even numbers."""
    out, before = b"", 0
    for value in values:
        step = value - before
        out += varint(2 * step if step >= 0 else -2 * step - 1)
        before = value
    return out


def compress(data):
    room = ZSTD.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(room)
    size = ZSTD.ZSTD_compress(out, room, data, len(data), 3)
    return out.raw[:size]


def columns(events):
    marks = [kind == MARK for _, kind, *_ in events]
    times = [event[0] for event in events]
    return b"".join((
        bytes(event[1] for event in events),
        bytes(event[4] if len(event) > 4 else 0 for event in events),
        bytes(event[2] if mark else 0 for event, mark in zip(events, marks)),
        bytes(len(events)),
        b"".join(varint(time - before) for time, before in zip(times, [0] + times)),
        steps([0 if mark else event[2] for event, mark in zip(events, marks)]),
        b"".join(varint(event[3]) for event in events),
        steps([0] * len(events))))


def write(path, events, page_bytes=4096):
    """Events are (time_ns, kind, block or mark, size or value[, access]); 65536 at most."""
    head = struct.pack("<8sHHIQQQII", b"\x89EBBT\r\n\x1a", 1, 0, 59, 0, page_bytes, 0, 1, 3)
    plain = columns(events)
    payload = compress(plain)
    block = struct.pack("<4sIIIQQ", b"eBLK", len(payload), len(events), len(plain), 0,
                        XXHASH.XXH3_64bits(payload, len(payload)))
    foot = struct.pack("<4sIQQ", b"eEND", 0, len(events), 1)
    with open(path, "wb") as file:
        file.write(checked(head + b"net") + checked(block) + payload + checked(foot))
