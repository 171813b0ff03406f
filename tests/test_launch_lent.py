#!/usr/bin/python3
"""What goes around the handlers of fork, and pages that the kernel keeps for longer than a call, on every
device."""
from launching import Launch, compile_c, main

DEVICES = ["", "kernel", "move", "move,kernel", "uffd"]


class Lent(Launch):
    def forks(self, mode, refuse=""):
        """The words that the program prints before `right`."""
        env = dict(self.env, EBB_REFUSE=refuse)
        result = self.run_ebb(compile_c("forks"), mode, options=("--budget", "2560K", "--quiet"),
                              env=env)
        self.assertEqual((0, b""), (result.returncode, result.stderr), (mode, refuse))
        words = result.stdout.decode().split()
        self.assertEqual("right", words.pop())
        return words

    def test_without_handlers(self):
        """_Fork(), clone() and the system calls."""
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("without-handlers", refuse=device)

    def test_pages_lent_to_a_pipe(self):
        for device in DEVICES:
            with self.subTest(refuse=device):
                self.forks("lent", refuse=device)

    def test_what_writes_between_calls_is_refused(self):
        """io_uring and aio, where a device cannot see what they use; one line says so."""
        plain = self.run_command([compile_c("forks"), "asynchronous"]).stdout.decode().split()
        self.assertEqual(plain[:-1], self.forks("asynchronous"))
        for device in DEVICES[1:]:
            env = dict(self.env, EBB_REFUSE=device)
            result = self.run_ebb(compile_c("forks"), "asynchronous", options=["--budget", "4M"],
                                  env=env)
            self.assertEqual(b"no-ring\nno-aio\nright\n", result.stdout, result.stderr)
            self.assertEqual(1, result.stderr.count(b"ENOSYS"), result.stderr)


if __name__ == "__main__":
    main()
