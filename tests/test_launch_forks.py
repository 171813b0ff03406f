#!/usr/bin/python3
"""Programs that fork while blocks are absent, on every device.

Relatives share space of the store. They run side by side, or are nested.
"""
import json
import os
import signal

from devices import sample
from launching import Launch, compile_c, main

# If a twentieth of the space were lost, 4.5 MB after ten forks would be 16 MB at the end.
FORKS = 300


class Forks(Launch):
    def forks(self, *args, refuse="", options=("--budget", "2560K", "--quiet"), status=0, **kwargs):
        """The words that the program prints before `right`."""
        env = dict(self.env, EBB_REFUSE=refuse)
        result = self.run_ebb(compile_c("forks"), *args, options=options, env=env, **kwargs)
        self.assertEqual(status, result.returncode, (args, refuse, result.stderr))
        self.assertEqual(b"", result.stderr)
        words = result.stdout.decode().split()
        self.assertEqual("right", words.pop())
        return words

    def test_store_space_is_free_again(self):
        """The store takes as much after FORKS forks as after ten. Two of 16 blocks may differ by
        chance. Without reuse of space, each fork would add several."""
        early, late = map(int, self.forks("sequence", str(FORKS)))
        self.assertGreater(early, 0)
        self.assertLessEqual(late, early * 1.05 + (2 << 18))

    def test_store_space_is_free_again_without_parent(self):
        """Generations of processes end after the death of `ebb`."""
        early, late = map(int, self.forks("orphan", "60", status=-signal.SIGKILL))
        self.assertGreater(early, 0)
        self.assertLessEqual(late, early + (4 << 18))  # blocks; each fork would add several

    def test_an_unheard_child_leaves_nothing_in_the_ledger(self):
        """`ebb` is stopped while a child waits for it. Afterwards nothing must be evicted."""
        summary = os.path.join(self.folder, "summary.json")
        self.forks("unheard", options=("--budget", "4M", "--quiet", "--summary-json", summary))
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertEqual((0, False), (figures["moved_out_bytes"], figures["budget_exceeded"]))
        self.assertGreaterEqual(figures["peak_resident_bytes"], 15 << 18)

    def test_side_by_side(self):
        for device in sample("beside"):
            with self.subTest(refuse=device):
                self.forks("beside", "30", refuse=device)

    def test_within_one_another(self):
        for device in sample("nested"):
            with self.subTest(refuse=device):
                self.forks("nested", "30" if device == "" else "10", refuse=device)

    def test_while_others_allocate(self):
        """_Fork() and the bare system call leave libc's locks as they are, so Ebb must need none of
        them."""
        for device in sample("churned"):
            with self.subTest(refuse=device):
                self.forks("churned", refuse=device)

    def test_while_others_use_streams(self):
        """libc has a lock on all streams during a fork. Its holder may wait for blocks."""
        program = compile_c("fork_streams")
        for device in sample("streams"):
            with self.subTest(refuse=device):
                self.env["EBB_REFUSE"] = device
                path = os.path.join(self.folder, "lines")
                result = self.run_ebb(program, path, "24", options=["--budget", "16M"])
                self.assertEqual((0, b"good\n", b""),
                                 (result.returncode, result.stdout, result.stderr))

    def test_while_the_runtime_starts(self):
        """The runtime's lock is released only by a fork that has taken it. In half of the runs a
        fork is under way when the runtime is there."""
        for _ in range(6):
            result = self.run_ebb(compile_c("fork_start"), options=["--budget", "40M"])
            self.assertEqual((0, b"as it should be\n", b""),
                             (result.returncode, result.stdout, result.stderr))

    def test_on_stacks_in_blocks(self):
        """The stack of the forking thread is a block. Most of its pages were never touched."""
        for device in sample("on-block"):
            with self.subTest(refuse=device):
                self.forks("on-block", "12", refuse=device)


if __name__ == "__main__":
    main()
