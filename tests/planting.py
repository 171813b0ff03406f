"""A tree with planted violations: how tests of rules show that they can fail."""
import contextlib
import os
import tempfile


@contextlib.contextmanager
def planted(files):
    """A temporary folder with these files, path: text."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        yield root


def is_same(found, wanted):
    """Is exactly what is wanted found? If not, what differs is printed."""
    for line in sorted(set(wanted) - set(found)):
        print(f"self-test: not found: {line}")
    for line in sorted(set(found) - set(wanted)):
        print(f"self-test: found and not planted: {line}")
    return set(found) == set(wanted)
