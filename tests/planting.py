"""Makes a tree with planted violations, to show that the tests of rules can fail."""
import contextlib
import os
import tempfile


@contextlib.contextmanager
def planted(files):
    """A temporary folder with these files. `files` maps paths to texts."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        yield root


def is_same(found, wanted):
    """True if exactly the wanted lines were found. Else it prints the difference."""
    for line in sorted(set(wanted) - set(found)):
        print(f"self-test: not found: {line}")
    for line in sorted(set(found) - set(wanted)):
        print(f"self-test: found and not planted: {line}")
    return set(found) == set(wanted)
