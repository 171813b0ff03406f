/* Programs under Ebb, tried: /bin/true and python3. And whether that python3 has PyTorch. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Prints its path, its version, and PyTorch's, without importing that. */
#define LOOK                                                                                       \
    "import sys, importlib.util as u\n"                                                            \
    "s = u.find_spec('torch')\n"                                                                   \
    "v = {}\n"                                                                                     \
    "try:\n"                                                                                       \
    "    exec(open(s.submodule_search_locations[0] + '/version.py').read(), v)\n"                  \
    "except Exception: pass\n"                                                                     \
    "print(sys.executable, sys.version.split()[0], v.get('__version__', '?') if s else '-',\n"     \
    "      'cuda' if v.get('cuda') else 'cpu')\n"

static const char *store; /* for the trials, which are called without arguments */

/* Becomes `ebb run` of the program. Without a hello of the program, --strict ends it with 125. */
static void run(int descriptor, char *const *program)
{
    char *arguments[16] = {"ebb",      "run", "-q",      "--strict", "--no-cache",
                           "--budget", "64M", "--store", NULL,       "--"};
    size_t count = 10;
    arguments[8] = (char *)(uintptr_t)(*store ? store : "memory");
    while (*program)
        arguments[count++] = *program++;
    dup2(descriptor, STDOUT_FILENO);
    dup2(descriptor, STDERR_FILENO);
    close(descriptor);
    execv("/proc/self/exe", arguments);
    execv((const char *)getauxval(AT_EXECFN), arguments); /* /proc may be missing */
    _exit(127);
}

static void run_true(int descriptor)
{
    run(descriptor, (char *[]){"/bin/true", NULL});
}

static void run_python(int descriptor)
{
    run(descriptor, (char *[]){"python3", "-c", LOOK, NULL});
}

static void first_line(char *text)
{
    text[strcspn(text, "\n")] = 0;
}

static void add_python(struct ebb_doctor *report, char *said, bool worked)
{
    char path[256], version[32], torch[64], kind[8];
    if (!worked || sscanf(said, "%255s %31s %63s %7s", path, version, torch, kind) != 4) {
        first_line(said);
        bool missing = access("/usr/bin/python3", X_OK) != 0;
        ebb__doctor_add(report, "python3", missing ? EBB_DOCTOR_OK : EBB_DOCTOR_WARN,
                        "see that python3 -c pass works, and that PATH has the one you use",
                        missing ? "not found%s" : "does not run under Ebb: %s",
                        missing ? "" : said);
        return;
    }
    ebb__doctor_add(report, "python3", EBB_DOCTOR_OK, "", "%s %s runs under Ebb", path, version);
    if (strcmp(torch, "-") == 0)
        ebb__doctor_add(report, "pytorch", EBB_DOCTOR_OK, "", "not found by this python3");
    else
        ebb__doctor_add(report, "pytorch", EBB_DOCTOR_OK, "", "%s, built for %s", torch,
                        strcmp(kind, "cuda") == 0 ? "CUDA" : "the CPU");
}

void ebb__doctor_programs(struct ebb_doctor *report)
{
    char said[512];
    store = report->store;
    bool loads = ebb__doctor_try(run_true, said, sizeof said);
    first_line(said);
    ebb__doctor_add(
        report, "program", loads ? EBB_DOCTOR_OK : EBB_DOCTOR_FAIL,
        "see the lines above; and that nothing strips LD_PRELOAD", "%s%s",
        loads ? "/bin/true runs under Ebb" : "/bin/true does not run under Ebb: ", said);
    bool worked = ebb__doctor_try(run_python, said, sizeof said);
    add_python(report, said, worked);
}
