"""Reads trace files (ebb-trace(5)) and summaries."""
import collections
import ctypes
import json
import struct

KINDS = {1: "alloc", 2: "free", 3: "access", 4: "launch", 5: "mark"}
ACCESSES = {0: None, 1: "read", 2: "write"}
MARKS = {1: "iteration", 2: "layer", 3: "phase", 4: "trace on", 5: "trace off", 6: "plan on",
         7: "plan off", 8: "lost", 9: "lap", 10: "wait", 11: "observed"}
MOST_EVENTS, LEAST_BYTES, MOST_BYTES = 65536, 8, 39  # of a block, and of an event in it

# access: "read", "write" or None. mark: None but for marks, whose value is in size_bytes.
Event = collections.namedtuple("Event", "time_ns kind block size_bytes access mark flags thread")
# complete: False if the writer was killed; then the events after the last whole block are missing.
Trace = collections.namedtuple(
    "Trace", "command process_id start_unix_ns threshold_bytes page_bytes complete events")


class Error(Exception):
    """A file is neither a trace nor a summary, or is damaged."""


class _Libraries:
    """libzstd and libxxhash, which the command `ebb` needs, too. Loaded when they are used."""

    def __init__(self):
        self.zstd = ctypes.CDLL("libzstd.so.1")
        self.zstd.ZSTD_decompress.restype = ctypes.c_size_t
        self.zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                              ctypes.c_size_t]
        self.xxhash = ctypes.CDLL("libxxhash.so.0")
        self.xxhash.XXH3_64bits.restype = ctypes.c_uint64
        self.xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def is_sound(self, data, checksum):
        return self.xxhash.XXH3_64bits(data, len(data)) == checksum

    def decompress(self, data, size):
        """None if the data do not decompress to `size` bytes."""
        out = ctypes.create_string_buffer(size)
        got = self.zstd.ZSTD_decompress(out, size, data, len(data))
        return out.raw if got == size else None


def _varints(data, at, count):
    values = []
    for _ in range(count):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        values.append(value)
    return values, at


def _steps(values, bits):
    """What signed steps lead to, modulo 2^bits."""
    out, now = [], 0
    for value in values:
        now = (now + (value >> 1 if value % 2 == 0 else -(value >> 1) - 1)) % (1 << bits)
        out.append(now)
    return out


def _events(data, count):
    kinds, accesses, marks, flags = (data[i * count:(i + 1) * count] for i in range(4))
    times, at = _varints(data, 4 * count, count)
    blocks, at = _varints(data, at, count)
    sizes, at = _varints(data, at, count)
    threads, at = _varints(data, at, count)
    if at != len(data):
        raise IndexError
    now = 0
    columns = zip(times, kinds, _steps(blocks, 64), sizes, accesses, marks, flags,
                  _steps(threads, 32))
    for step, kind, block, size, access, mark, flag, thread in columns:
        now += step
        yield Event(now, KINDS[kind], block, size, ACCESSES[access],
                    MARKS[mark] if kind == 5 else None, flag, thread)


def _header(path, data, libraries):
    if len(data) < 56 or data[:8] != b"\x89EBBT\r\n\x1a":
        raise Error(f"{path}: neither a trace nor a summary of Ebb")
    major, _, size, threshold, page, start, process, length = struct.unpack_from("<HHIQQQII", data, 8)
    if not 56 <= size <= len(data) or not libraries.is_sound(
            data[:size - 8], struct.unpack_from("<Q", data, size - 8)[0]):
        raise Error(f"{path}: damaged at byte 0")
    if major != 1:
        raise Error(f"{path}: of version {major}, this reads version 1")
    command = data[48:48 + length].decode("utf-8", "replace")
    return size, (command, process, start, threshold, page)


def _is_end(data, at, count, blocks, libraries):
    if len(data) != at + 32 or data[at:at + 4] != b"eEND":
        return False
    found, total, checksum = struct.unpack_from("<QQQ", data, at + 8)
    return libraries.is_sound(data[at:at + 24], checksum) and (found, total) == (count, blocks)


def _read_trace(path, data):
    libraries = _Libraries()
    at, head = _header(path, data, libraries)
    events, blocks = [], 0
    while True:
        if _is_end(data, at, len(events), blocks, libraries):
            return Trace(*head, True, events)
        if len(data) - at < 40 or not any(data[at:]):
            return Trace(*head, False, events)
        magic, size, count, plain, before, sum_payload, sum_head = struct.unpack_from(
            "<4sIIIQQQ", data, at)
        if (magic != b"eBLK" or not libraries.is_sound(data[at:at + 32], sum_head)
                or before != len(events) or not 1 <= count <= MOST_EVENTS
                or not LEAST_BYTES * count <= plain <= MOST_BYTES * count):
            raise Error(f"{path}: damaged at byte {at}")
        payload, end = data[at + 40:at + 40 + size], at + 40 + size
        if len(payload) < size:
            return Trace(*head, False, events)
        if not libraries.is_sound(payload, sum_payload):
            if end == len(data):
                return Trace(*head, False, events)
            raise Error(f"{path}: damaged at byte {at}")
        try:
            events += _events(libraries.decompress(payload, plain), count)
        except (IndexError, KeyError, TypeError):
            raise Error(f"{path}: damaged at byte {at}") from None
        at, blocks = end, blocks + 1


def read(path):
    """A Trace, or the dict of a summary (or of any other JSON object of Ebb). Error, OSError."""
    with open(path, "rb") as file:
        data = file.read()
    if not data.lstrip().startswith(b"{"):
        return _read_trace(path, data)
    try:
        found = json.loads(data)
    except ValueError as error:
        raise Error(f"{path}: no JSON: {error}") from None
    if not str(found.get("schema", "")).startswith("ebb."):
        raise Error(f"{path}: has no schema of Ebb")
    return found
