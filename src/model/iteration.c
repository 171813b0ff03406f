/* Method: a window of a periodic stream is built unchanged (build.c), or with the largest sizes of
 * all windows, if these vary (widest.c). If threads interleave, the window is the pattern, and its
 * neighbours are merged into it first (unordered.c). All then get the times of iterations that were
 * not traced (times.c). */
#include "iteration.h"

#include "times.h"
#include "unordered.h"
#include "widest.h"

#include <string.h>

enum {
    UNORDERED_BEFORE = 6, /* iterations before the pattern, a limit: for lifetimes across them */
    UNORDERED_BEHIND = 2,
    UNORDERED_OBSERVED = 2, /* number of iterations whose accesses are merged in */
};

/* Models the window as the pattern of the iterations around it. */
static enum ebb_status model_unordered(const struct ebb_stream *stream,
                                       const struct ebb_template *template,
                                       const struct ebb_window *window, struct ebb_model *model,
                                       struct ebb_error *error)
{
    struct ebb_window windows[UNORDERED_BEFORE + 1 + UNORDERED_BEHIND], next;
    size_t count = 0, own = SIZE_MAX, symbol = 0;
    while (ebb__stream_next_window(stream, template, &symbol, &next)) {
        if (count && windows[count - 1].last != next.first) {
            if (own != SIZE_MAX)
                break;
            count = 0;
        }
        if (next.first > window->first && own == SIZE_MAX)
            break;
        if (own == SIZE_MAX && count > UNORDERED_BEFORE)
            memmove(windows, windows + 1, --count * sizeof *windows);
        if (next.first == window->first)
            own = count;
        windows[count++] = next;
        if (own != SIZE_MAX && count > own + UNORDERED_BEHIND)
            break;
    }
    if (own == SIZE_MAX)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "iteration", "it is none of its template");
    struct ebb_unordered unordered;
    enum ebb_status status =
        ebb__unordered_make(stream, windows, count, own, UNORDERED_OBSERVED, &unordered);
    if (status)
        return ebb__fail(error, status, "iteration", "no memory for its model");
    struct ebb_event_span trace = {unordered.events.items, unordered.events.count};
    status = ebb__model_build(trace, unordered.first, unordered.period, model, error);
    if (!status && ebb__times_retime(stream, template, window, model) != EBB_OK) {
        ebb__model_fini(model);
        status = ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its times");
    }
    if (!status) {
        model->unordered = true;
        model->slack_bytes = unordered.slack_bytes;
    }
    ebb__unordered_fini(&unordered);
    return status;
}

enum ebb_status ebb__stream_model(const struct ebb_stream *stream,
                                  const struct ebb_template *template,
                                  const struct ebb_window *window, struct ebb_model *model,
                                  struct ebb_error *error)
{
    if (template->landmark_bytes)
        return model_unordered(stream, template, window, model, error);
    struct ebb_event_span trace = {stream->events.items, stream->events.count};
    struct ebb_model made;
    enum ebb_status status =
        template->kind == EBB_SYMBOL_SHAPE
            ? ebb__widest_model(stream, template, window, &made, error)
            : ebb__model_build(trace, window->first, window->last - window->first, &made, error);
    if (status)
        return status;
    if (ebb__times_retime(stream, template, window, &made) != EBB_OK) {
        ebb__model_fini(&made);
        return ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its times");
    }
    *model = made;
    return EBB_OK;
}
