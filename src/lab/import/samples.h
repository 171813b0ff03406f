/* Memory events of a profiler, as samples that are not yet in order. Importers of profiles use it.
 *
 * A profiler writes what it saw within a window. So a block may be older than the window, or may
 * outlive it. Events of several devices, threads and processes are mixed. An event may be lost.
 * Here one device is chosen, and its samples become events in order of time. What does not fit is
 * left out, counted, and reported in notes. The file is not refused, since the rest is right. */
#ifndef EBB_LAB_IMPORT_SAMPLES_H
#define EBB_LAB_IMPORT_SAMPLES_H

#include "base/vec.h"
#include "lab/import/import.h"

#define EBB_SAMPLE_TOTAL_UNKNOWN UINT64_MAX

enum ebb_sample_kind { EBB_SAMPLE_ALLOC, EBB_SAMPLE_FREE, EBB_SAMPLE_ITERATION };

struct ebb_sample {
    uint64_t place; /* in the file, from 1 */
    uint64_t time_ns;
    uint64_t address;
    uint64_t size_bytes;    /* what was asked for */
    uint64_t counted_bytes; /* what the total counts for it */
    uint64_t total_bytes;   /* on its device after it, according to the profiler */
    uint32_t device;        /* of the table; an iteration is on all devices of its process */
    uint32_t thread;
    enum ebb_sample_kind kind;
};

struct ebb_sample_device {
    char process[48]; /* or host */
    char name[48];    /* "cpu", "cuda:0" */
    uint64_t count;   /* of its allocations and frees */
};

struct ebb_samples {
    struct ebb_import_request *request;
    const char *unit; /* of places: "event" */
    EBB_VEC(struct ebb_sample) samples;
    EBB_VEC(struct ebb_sample_device) devices;
    uint64_t begin_ns; /* time of the first event; set by ebb__samples_finish() */
    struct ebb_error *error;
};

void ebb__samples_init(struct ebb_samples *samples, struct ebb_import_request *request,
                       const char *unit, struct ebb_error *error);
void ebb__samples_fini(struct ebb_samples *samples);

/* Finds or adds a device. O(devices). EBB_ERR_FORMAT if there are too many. */
EBB_NODISCARD enum ebb_status ebb__samples_device(struct ebb_samples *samples, const char *process,
                                                  const char *name, uint32_t *device);

/* Adds a sample of a device that was found. */
EBB_NODISCARD enum ebb_status ebb__samples_add(struct ebb_samples *samples,
                                               const struct ebb_sample *sample);

/* Makes the trace of the requested device. O(samples log samples). `no_samples` says why there may
 * be no sample at all. Errors as ebb__import(). */
EBB_NODISCARD enum ebb_status ebb__samples_finish(struct ebb_samples *samples,
                                                  const char *no_samples, struct ebb_trace *trace);

#endif
