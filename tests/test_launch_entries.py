#!/usr/bin/python3
"""Each function of the preloaded library does what the C library's function does.

It does so for any size, in threads that are cancelled or interrupted, around forks, and at the end
of a program. Each program runs without Ebb first. Under Ebb it must do the same on every device.
"""
from devices import REFUSED
from launching import Launch, compile_c, faulty_disk, main


class Entries(Launch):
    def test_sizes_and_alignments(self):
        self.both(compile_c("sizes", options=["-fno-builtin", "-ldl", "-w"]), budget_mib=64)

    def entries(self, *arguments, **kwargs):
        self.both(compile_c("entries"), *arguments, **kwargs)

    def test_cancelled_while_allocating(self):
        self.entries("cancel")

    def test_cancelled_at_once(self):
        self.entries("cancel-at-once")

    def test_cancelled_in_a_call_that_has_a_block(self):
        self.entries("cancel-calls")

    def test_handler_jumps_out_of_a_call_that_has_a_block(self):
        self.entries("jump-out-of-calls")

    def test_handler_uses_the_heap(self):
        self.entries("handler")

    def test_handler_jumps_out_of_an_access(self):
        self.entries("jump")

    def test_mask_cancellation_and_errno_are_kept(self):
        self.entries("keeps")

    def test_main_leaves_by_pthread_exit(self):
        self.entries("leave-main")
        self.entries("leave-child")
        self.entries("leave-bare")

    def test_threads_on_blocks(self):
        self.entries("stacks")

    def test_clones_on_blocks(self):
        self.entries("clones")

    def test_contexts_on_blocks(self):
        self.entries("contexts")

    def test_signals_on_blocks(self):
        self.entries("alternate")

    def test_handlers_that_wait_for_a_slow_disk(self):
        """Each waits far longer than until the next alarm. The program gets on between them."""
        self.env.update(LD_PRELOAD=faulty_disk(), FAULTY_DISK="delay_us=4000")
        self.entries("contexts")

    def test_stacks_that_nobody_is_told_of(self):
        # Without userfaultfd, the fault itself needs space on the stack.
        self.entries("raw-stacks", refused=[name for name in REFUSED if name != "uffd"])

    def test_exit_while_others_allocate(self):
        self.entries("exit")

    def test_fork_handlers_of_a_linked_library_allocate(self):
        library = compile_c("libatfork.so", of="atfork",
                            options=["-DLIBRARY", "-shared", "-fPIC"])
        self.both(compile_c("atfork", options=[library]))


if __name__ == "__main__":
    main()
