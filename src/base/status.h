/* Status codes: how every function of Ebb reports success or failure.
 *
 * One table holds name, text and exit code, so that they stay consistent. Functions return `enum
 * ebb_status`. Results are trailing out parameters. Detail for a person is written into a
 * caller-owned `struct ebb_error` (NULL if not wanted). Thread-safe: no state. */
#ifndef EBB_BASE_STATUS_H
#define EBB_BASE_STATUS_H

#if defined(__GNUC__)
#define EBB_NODISCARD __attribute__((warn_unused_result))
#define EBB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EBB_NODISCARD
#define EBB_PRINTF(format, first)
#endif

/* X(name, text, exit code of a command that ends with this status) */
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

/* Returns a short English text in static storage; "unknown status" for a value outside the
 * table. */
const char *ebb_status_text(enum ebb_status status);

/* The exit code of a command that ends with `status`: 0 success, 1 failure, 2 usage, 3
 * infeasible. */
int ebb_status_exit_code(enum ebb_status status);

/* Detail of a failure. `what` names the object (a file, an option), `why` says what is wrong,
 * `remedy` what to do about it. Each may be empty. Plain data: may be copied. */
struct ebb_error {
    enum ebb_status status;
    char what[160];
    char why[256];
    char remedy[256];
};

/* Fills `error` (ignored if NULL) and returns `status`, so that `return ebb__fail(...)` is one
 * statement. `why` is a printf format. */
EBB_PRINTF(4, 5)
enum ebb_status ebb__fail(struct ebb_error *error, enum ebb_status status, const char *what,
                          const char *why, ...);

/* Sets the remedy of an error that ebb__fail() has filled. */
EBB_PRINTF(2, 3)
void ebb__error_set_remedy(struct ebb_error *error, const char *remedy, ...);

#endif
