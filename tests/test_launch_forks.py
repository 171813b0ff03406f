#!/usr/bin/python3
"""Programs that fork while blocks are absent: store space that relatives share, side by side and within one
another, on every device."""
import json
import os
import signal

from launching import Launch, compile_c, main

FORKS = 300  # if a twentieth of the space did not return, 4.5 MB after ten forks would be 16 MB at the end
DEVICES = ["", "kernel", "move", "move,kernel", "uffd"]


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
        """As much after FORKS as after ten, but for two of 16 blocks that may be evicted at once by chance:
        each fork keeps several where space does not return."""
        early, late = map(int, self.forks("sequence", str(FORKS)))
        self.assertGreater(early, 0)
        self.assertLessEqual(late, early * 1.05 + (2 << 18))

    def test_store_space_is_free_again_without_parent(self):
        """Generations end although `ebb` has died."""
        early, late = map(int, self.forks("orphan", "60", status=-signal.SIGKILL))
        self.assertGreater(early, 0)
        self.assertLessEqual(late, early + (4 << 18))  # blocks; each fork would keep several

    def test_an_unheard_child_leaves_nothing_in_the_ledger(self):
        """`ebb` is stopped for as long as the child waits for it; nothing has to leave afterwards."""
        summary = os.path.join(self.folder, "summary.json")
        self.forks("unheard", options=("--budget", "4M", "--quiet", "--summary-json", summary))
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertEqual((0, False), (figures["moved_out_bytes"], figures["budget_exceeded"]))
        self.assertGreaterEqual(figures["peak_resident_bytes"], 15 << 18)

    def test_side_by_side(self):
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("beside", "30", refuse=device)

    def test_within_one_another(self):
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("nested", "30" if device == "" else "10", refuse=device)

    def test_while_others_allocate(self):
        """_Fork() and the bare system call leave libc's locks as they are: nobody may need one."""
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("churned", refuse=device)

    def test_on_stacks_in_blocks(self):
        """The thread that forks stands on a block, of which most was never touched."""
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("on-block", "12", refuse=device)


if __name__ == "__main__":
    main()
