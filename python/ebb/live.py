"""Marks and figures of a process under `ebb run`."""
import ctypes
import os
import socket

PHASES = {None: 0, "forward": 1, "backward": 2, "update": 3, "evaluate": 4}
_ITERATION, _LAYER, _PHASE = 1, 2, 3
_MAGIC = 0x3174617473626245
_NO_BUDGET = 2**64 - 1


class _Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "resident_bytes peak_resident_bytes over_bytes moved_out_bytes moved_in_bytes out_busy_ns "
        "in_busy_ns stall_ns demand_faults store_peak_bytes iterations planned_iterations "
        "last_iteration_ns plans predicted_stall_ns_per_iteration").split()]


class _Packet(ctypes.Structure):
    """struct ebb_status_packet of src/parent/status.h."""
    _fields_ = [("magic", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("process_id", ctypes.c_int32), ("main_process_id", ctypes.c_int32),
                ("now_ns", ctypes.c_uint64), ("started_ns", ctypes.c_uint64),
                ("budget_bytes", ctypes.c_uint64), ("in_force", ctypes.c_uint32),
                ("processes", ctypes.c_uint32), ("figures", _Figures),
                ("device_kind", ctypes.c_uint32), ("command", ctypes.c_char * 256),
                ("policy", ctypes.c_char * 32), ("mode", ctypes.c_char * 16)]


def _taker():
    try:
        function = ctypes.CDLL(None).ebb_malloc_mark
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = [ctypes.c_uint, ctypes.c_uint64], None
    return function


_take = _taker()


def mark(*, layer=None, phase=None):
    """Tells Ebb that an iteration begins; or a layer, numbered from 1 (0: of none); or a phase:
    "forward", "backward", "update" or "evaluate". True if Ebb hears it."""
    if phase is not None and phase not in PHASES:
        raise ValueError(f"phase is one of {', '.join(p for p in PHASES if p)}, not {phase!r}")
    if layer is not None and not 0 <= layer < 2**32:
        raise ValueError("layers are numbered from 1")
    if _take is None:
        return False
    if layer is not None:
        _take(_LAYER, layer)
    if phase is not None:
        _take(_PHASE, PHASES[phase])
    if layer is None and phase is None:
        _take(_ITERATION, 0)
    return True


def _address():
    """Of the run that this process belongs to, or None."""
    parts = os.environ.get("EBB_RUN", "").split(":")
    if len(parts) < 5 or not (parts[3].isdigit() and parts[4].isdigit()):
        return None
    return f"\0ebb-run-{parts[4]}-{parts[3]}"


def stats():
    """The figures of the run, as `ebb top --once --json` has them, without rates. None if this
    process is not under `ebb run`, or that has ended, or is of another version."""
    address, packet = _address(), None
    if address is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.settimeout(1)
        try:
            one.connect(address)
            data = one.recv(65536)
        except OSError:
            return None
    if len(data) == ctypes.sizeof(_Packet):
        packet = _Packet.from_buffer_copy(data)
    if packet is None or (packet.magic, packet.bytes) != (_MAGIC, len(data)):
        return None
    found = {name: getattr(packet, name) for name in
             ("process_id", "main_process_id", "processes")}
    found["elapsed_ns"] = packet.now_ns - packet.started_ns
    found["budget_bytes"] = None if packet.budget_bytes == _NO_BUDGET else packet.budget_bytes
    found["in_force"] = bool(packet.in_force)
    for name in ("command", "policy", "mode"):
        found[name] = getattr(packet, name).decode("utf-8", "replace")
    found.update((name, getattr(packet.figures, name)) for name, _ in _Figures._fields_)
    return found
