"""Ebb from Python: traces and summaries as plain lists, and marks and figures of a living run.

    import ebb
    trace = ebb.read("run.ebbt")         # or a summary of `ebb run --summary-json`
    for event in trace.events: print(event.time_ns, event.kind, event.size_bytes)

    for batch in loader:                 # in a program under `ebb run`
        ebb.mark()                       # an iteration begins; does nothing without Ebb
        ...
    print(ebb.stats()["resident_bytes"])  # None without Ebb

Pure Python, and nothing is built. Bytes and nanoseconds are integers.
"""
from .live import mark, stats
from .trace import Error, Event, Trace, read

__all__ = ["Error", "Event", "Trace", "mark", "read", "stats"]
