#!/usr/bin/python3
""".ci/ctest.py must fail if a test is skipped without need. Here tests break that rule."""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
SKIP = "echo 'skipped: needs EBB_DATA'"


class Rule(unittest.TestCase):
    def run_tests(self, *scripts, has_data=False):
        """Exit code and output of .ci/ctest.py on shell scripts that stand for tests."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                for i, script in enumerate(scripts):
                    file.write(f'add_test(t{i} "/bin/sh" "-c" [==[{script}]==])\n'
                               f"set_tests_properties(t{i} PROPERTIES SKIP_RETURN_CODE 77)\n")
            data = folder if has_data else os.path.join(folder, "none")
            done = subprocess.run([sys.executable, os.path.join(SOURCE, ".ci/ctest.py"), folder],
                                  env=dict(os.environ, EBB_DATA=data), capture_output=True,
                                  text=True, check=False)
        return done.returncode, done.stdout

    def expect(self, code, last, *scripts, says="", has_data=False):
        found, out = self.run_tests(*scripts, has_data=has_data)
        self.assertEqual((found, out.splitlines()[-1]), (code, last), out)
        self.assertIn(says, out)

    def test_passed_and_failed(self):
        self.expect(0, "2 passed, 0 failed, 0 skipped", "true", "true")
        self.expect(1, "1 passed, 1 failed, 0 skipped", "true", "false", says="t1: FAILED")

    def test_skip_is_in_order_where_it_lacks(self):
        self.expect(0, "1 passed, 0 failed, 1 skipped", "true", f"{SKIP}; exit 77")
        self.expect(1, "1 passed, 0 failed, 1 skipped", "true", f"{SKIP}; exit 77",
                    says="UNEXPECTED: but EBB_DATA is here", has_data=True)

    def test_skip_must_say_why(self):
        self.expect(1, "1 passed, 0 failed, 1 skipped", "true", "exit 77",
                    says="it does not say why")
        for need in ("luck", "EBB_DATA_MORE", "EBB_DATA-2"):
            self.expect(1, "1 passed, 0 failed, 1 skipped", "true",
                        f"echo 'skipped: needs {need}'; exit 77", says="unknown need")
        self.expect(0, "1 passed, 0 failed, 1 skipped", "true",
                    "echo 'skipped: needs EBB_DATA, the public traces'; exit 77")

    def test_skip_for_a_sanitizer(self):
        for need, codes in (("threads after fork", (0, 1, 1)), ("address space", (0, 0, 1))):
            skip = f"echo 'skipped: needs {need}'; echo '[  SKIPPED ] one'"
            for sanitizer, code in zip(("thread", "address,undefined", ""), codes):
                cache = f"echo 'EBB_SANITIZE:STRING={sanitizer}' > CMakeCache.txt"
                self.expect(code, "1 passed, 0 failed, 0 skipped", f"{cache}; {skip}")

    def test_skip_without_the_lab(self):
        skip = "echo 'skipped: needs lab'; exit 77"
        for value, code in (("OFF", 0), ("ON", 1)):
            cache = f"echo 'EBB_LAB:BOOL={value}' > CMakeCache.txt"
            self.expect(code, "1 passed, 0 failed, 1 skipped", "true", f"{cache}; {skip}")

    def test_some_skipped(self):
        for silent in ("[  SKIPPED ] one", "OK (skipped=2)", "OK (expected failures=1, skipped=1)"):
            self.expect(1, "1 passed, 0 failed, 0 skipped", f"echo '{silent}'",
                        says="it does not say why")
            self.expect(0, "1 passed, 0 failed, 0 skipped", f"{SKIP}; echo '{silent}'")
            self.expect(1, "1 passed, 0 failed, 0 skipped", f"{SKIP}; echo '{silent}'",
                        has_data=True)
        self.expect(1, "1 passed, 0 failed, 0 skipped", SKIP, has_data=True)

    def test_nothing_ran(self):
        self.expect(1, "0 passed, 0 failed, 1 skipped", f"{SKIP}; exit 77")
        self.assertEqual(self.run_tests()[0], 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
