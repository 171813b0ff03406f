#!/usr/bin/python3
"""With few descriptors and short files, a program does the same under Ebb as without it."""
from launching import Launch, compile_c, main


class Limits(Launch):
    def limited(self, limits, *arguments, **kwargs):
        self.both(compile_c("limits"), *arguments, **kwargs,
                  before=["bash", "-c", f'{limits}; exec "$@"', "bash"])

    def test_few_descriptors(self):
        """If the limit cannot be raised, Ebb's descriptors have the highest numbers."""
        self.limited("ulimit -n 512", "descriptors", "500")
        self.limited("ulimit -n 20", "descriptors", "10", refused=["", "uffd"])

    def test_descriptors_as_without(self):
        """If it can be raised, the program has as many descriptors as without Ebb."""
        self.limited("ulimit -Sn 1024", "descriptors", refused=["", "uffd"])
        self.limited("ulimit -Sn 512", "changed", refused=["", "uffd"])

    def test_no_descriptors(self):
        self.both(compile_c("limits"), "none", quiet=False)

    def test_descriptors_closed_by_number(self):
        self.both(compile_c("numbered"), budget_mib=6)

    def test_short_files(self):
        self.limited("ulimit -f 10", "files", quiet=False)
        self.limited("ulimit -f 3000", "files", quiet=False)


if __name__ == "__main__":
    main()
