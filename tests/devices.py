"""The devices of src/device/host.c, by the names that `ebb doctor` gives them."""

# device: what EBB_REFUSE takes away so that it is chosen on a system that permits all of them
DEVICES = {"uffd-move": "", "uffd-move-user": "kernel", "uffd-remap": "move",
           "uffd-remap-user": "kernel,move", "protect": "uffd"}
