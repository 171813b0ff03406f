"""The devices of src/device/host.c, by the names that `ebb doctor` prints."""

# device: the features that EBB_REFUSE must refuse, so that a system with all of them uses it
DEVICES = {"uffd-move": "", "uffd-move-user": "kernel", "uffd-remap": "move",
           "uffd-remap-user": "kernel,move", "protect": "uffd"}
