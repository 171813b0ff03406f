/* The report of `ebb doctor`: its lines, and how they are printed. */
#include "doctor.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COLUMNS 100
#define DETAIL_COLUMN 21
#define PATIENCE_MS 10000

static const char *const verdict_names[] = {"ok", "warn", "fail"};

void ebb__doctor_add(struct ebb_doctor *report, const char *name, enum ebb_verdict verdict,
                     const char *remedy, const char *detail, ...)
{
    struct ebb_doctor_check *check = &report->checks[report->count++];
    va_list arguments;
    va_start(arguments, detail);
    snprintf(check->name, sizeof check->name, "%s", name);
    vsnprintf(check->detail, sizeof check->detail, detail, arguments);
    va_end(arguments);
    if (verdict != EBB_DOCTOR_OK)
        snprintf(check->remedy, sizeof check->remedy, "%s", remedy);
    check->verdict = verdict;
    if (verdict > report->worst)
        report->worst = verdict;
}

bool ebb__doctor_line(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    bool good = file && fgets(line, (int)bytes, file);
    if (file)
        fclose(file);
    if (good)
        line[strcspn(line, "\n")] = 0;
    return good;
}

/* Reads until the end, or until the time is over. */
static bool read_text(int descriptor, char *text, size_t bytes)
{
    struct pollfd polled = {.fd = descriptor, .events = POLLIN};
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used + 1 < bytes && poll(&polled, 1, PATIENCE_MS) > 0) {
        got = read(descriptor, text + used, bytes - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    text[used] = 0;
    return got == 0;
}

bool ebb__doctor_try(void (*trial)(int descriptor), char *text, size_t bytes)
{
    int ends[2], status = -1;
    text[0] = 0;
    if (pipe(ends) != 0)
        return false;
    fflush(NULL);
    signal(SIGCHLD, SIG_DFL); /* if it is ignored, nobody knows how the child ends */
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        trial(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    bool ended = child > 0 && read_text(ends[0], text, bytes);
    close(ends[0]);
    if (child > 0 && !ended)
        kill(child, SIGKILL);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return ended && status == 0;
}

int ebb__doctor_json(const struct ebb_doctor *report)
{
    json_t *root = json_object(), *checks = json_array();
    json_object_set_new(root, "schema", json_string("ebb.doctor/1"));
    json_object_set_new(root, "verdict", json_string(verdict_names[report->worst]));
    json_object_set_new(root, "device", json_string(ebb__device_name(report->support.kind)));
    static const char *const doors[] = {"none", "node", "call", "user-call"};
    json_object_set_new(root, "userfaultfd", json_string(doors[report->support.door]));
    json_object_set_new(root, "store", report->store[0] ? json_string(report->store) : json_null());
    json_object_set_new(root, "plan_cache",
                        report->cache[0] ? json_string(report->cache) : json_null());
    const struct ebb_machine *machine = &report->machine;
    json_object_set_new(root, "out_bps",
                        report->probed ? json_integer((json_int_t)(1e9 / machine->out.ns_per_byte))
                                       : json_null());
    json_object_set_new(root, "in_bps",
                        report->probed ? json_integer((json_int_t)(1e9 / machine->in.ns_per_byte))
                                       : json_null());
    json_object_set_new(root, "huge_move_ns", json_integer((json_int_t)report->huge_move_ns));
    json_object_set_new(root, "small_move_ns", json_integer((json_int_t)report->small_move_ns));
    for (size_t i = 0; i < report->count; i++) {
        const struct ebb_doctor_check *check = &report->checks[i];
        json_array_append_new(checks,
                              json_pack("{s:s, s:s, s:s, s:s?}", "name", check->name, "verdict",
                                        verdict_names[check->verdict], "detail", check->detail,
                                        "remedy", check->remedy[0] ? check->remedy : NULL));
    }
    json_object_set_new(root, "checks", checks);
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    json_decref(root);
    return failed || putchar('\n') == EOF;
}

/* Prints text behind an indent, broken at spaces so that lines fit 100 columns. */
static void print_folded(const char *text, int indent)
{
    size_t room = (size_t)(COLUMNS - indent);
    while (strlen(text) > room) {
        size_t length = room;
        while (length && text[length] != ' ')
            length--;
        if (!length)
            length = room; /* one long word */
        printf("%.*s\n%*s", (int)length, text, indent, "");
        text += length + (text[length] == ' ');
    }
    puts(text);
}

int ebb__doctor_text(const struct ebb_doctor *report)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct ebb_doctor_check *check = &report->checks[i];
        printf("%-4s  %-13s  ", verdict_names[check->verdict], check->name);
        print_folded(check->detail, DETAIL_COLUMN);
        if (check->remedy[0]) {
            printf("%*s-> ", DETAIL_COLUMN, "");
            print_folded(check->remedy, DETAIL_COLUMN + 3);
        }
    }
    return ferror(stdout);
}
