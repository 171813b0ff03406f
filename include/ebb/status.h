/* Status codes: how every function of Ebb reports success or failure.
 *
 * Functions return `enum ebb_status`; results are trailing out parameters. No function prints, ends
 * the program or installs a handler. Detail for a person is written into a caller-owned `struct
 * ebb_error`, which may be NULL:
 *
 *     struct ebb_error error;
 *     if (ebb_context_create(&options, &context, &error) != EBB_OK)
 *         fprintf(stderr, "%s: %s\n", error.what, error.why);
 */
#ifndef EBB_STATUS_H
#define EBB_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EBB_NODISCARD __attribute__((warn_unused_result))
#define EBB_API __attribute__((visibility("default")))
#else
#define EBB_NODISCARD
#define EBB_API
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
 * table. Thread-safe. */
EBB_API const char *ebb_status_text(enum ebb_status status);

/* The exit code of a command that ends with `status`: 0 success, 1 failure, 2 usage, 3
 * infeasible. Thread-safe. */
EBB_API int ebb_status_exit_code(enum ebb_status status);

/* Detail of a failure. `what` names the object (a file, a tensor), `why` says what is wrong,
 * `remedy` what to do about it. Each may be empty. Plain data: may be copied. */
struct ebb_error {
    enum ebb_status status;
    char what[160];
    char why[256];
    char remedy[320];
};

#ifdef __cplusplus
}
#endif

#endif
