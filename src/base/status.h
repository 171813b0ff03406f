/* Status codes: how every function of Ebb says how it went.
 *
 * One table holds name, text and exit code, so that they cannot drift apart. Functions return
 * `enum ebb_status`; results go through trailing out parameters; detail that a person needs goes
 * into a caller-owned `struct ebb_error` (NULL where it is not wanted). Thread-safe: no state. */
#ifndef EBB_BASE_STATUS_H
#define EBB_BASE_STATUS_H

#if defined(__GNUC__)
#define EBB_NODISCARD __attribute__((warn_unused_result))
#define EBB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EBB_NODISCARD
#define EBB_PRINTF(format, first)
#endif

/* X(name, text, exit code of a command that ends with it) */
#define EBB_STATUS_TABLE(X)                                                                        \
    X(OK, "success", 0)                                                                            \
    X(ERR_MEMORY, "out of memory", 1)                                                              \
    X(ERR_IO, "input/output error", 1)                                                             \
    X(ERR_FORMAT, "malformed input", 1)                                                            \
    X(ERR_VERSION, "made by a newer version", 1)                                                   \
    X(ERR_ARGUMENT, "invalid argument", 2)                                                         \
    X(ERR_UNSUPPORTED, "not supported here", 1)                                                    \
    X(ERR_LIMIT, "limit exceeded", 1)                                                              \
    X(ERR_INTERNAL, "internal error", 1)                                                           \
    X(INFEASIBLE, "infeasible", 3)

enum ebb_status {
#define EBB_STATUS_ENUM(name, text, code) EBB_##name,
    EBB_STATUS_TABLE(EBB_STATUS_ENUM)
#undef EBB_STATUS_ENUM
};

/* A short English text, static storage; "unknown status" outside the table. */
const char *ebb_status_text(enum ebb_status status);

/* The exit code a command gives for `status`: 0, 1 failure, 2 usage, 3 infeasible. */
int ebb_status_exit_code(enum ebb_status status);

/* Detail of a failure. `what` names the thing (a file, an option), `why` says what is wrong,
 * `remedy` what to do about it; each may be empty. Plain data: copy freely. */
struct ebb_error {
    enum ebb_status status;
    char what[160];
    char why[256];
    char remedy[256];
};

/* Fill `error` (ignored where NULL) and return `status`, so that `return ebb__fail(...)` reads as
 * one step. `why` is a printf format. */
EBB_PRINTF(4, 5)
enum ebb_status ebb__fail(struct ebb_error *error, enum ebb_status status, const char *what,
                          const char *why, ...);

/* Set the remedy line of an error already filled by ebb__fail(). */
EBB_PRINTF(2, 3)
void ebb__error_set_remedy(struct ebb_error *error, const char *remedy, ...);

#endif
