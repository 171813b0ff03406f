"""The devices of src/device/host.c, by the names that `ebb doctor` prints."""
import os
import zlib

# device: the features that EBB_REFUSE must refuse, so that a system with all of them uses it
DEVICES = {"uffd-move": "", "uffd-move-user": "kernel", "uffd-remap": "move",
           "uffd-remap-user": "kernel,move", "protect": "uffd"}
REFUSED = tuple(DEVICES.values())
WHOLE = bool(os.environ.get("EBB_TEST_WHOLE"))  # `make test-whole`


def sample(what, refused=REFUSED):
    """The features to refuse in a test of `what`. They select the best device and one of the
    others, by a hash of `what`; with EBB_TEST_WHOLE=1 each device."""
    others = [features for features in refused if features]
    if WHOLE or not others:
        return tuple(refused)
    other = others[zlib.crc32(what.encode()) % len(others)]
    return tuple(features for features in refused if features in ("", other))
