/* Stand-ins for follow.c and clock.c until they are there. */
#include "cuda/clock.h"
#include "cuda/follow.h"
#include <stdlib.h>
struct ebb_cuda_follow { int x; };
struct ebb_cuda_clock { struct ebb_ring *ring; };
struct ebb_cuda_follow *ebb__follow_create(uint32_t n) { (void)n; return calloc(1, 4); }
void ebb__follow_destroy(struct ebb_cuda_follow *f) { free(f); }
enum ebb_status ebb__follow_set_script(struct ebb_cuda_follow *f, const struct ebb_script *s, uint64_t b) { (void)f; (void)s; (void)b; return EBB_OK; }
void ebb__follow_forget(struct ebb_cuda_follow *f) { (void)f; }
void ebb__follow_rename(struct ebb_cuda_follow *f, const struct ebb_renaming *r, size_t c) { (void)f; (void)r; (void)c; }
size_t ebb__follow_step(struct ebb_cuda_follow *f, const struct cuda_event *e, const struct cuda_action **a) { (void)f; (void)e; (void)a; return 0; }
bool ebb__follow_is_planned(const struct ebb_cuda_follow *f) { (void)f; return false; }
uint64_t ebb__follow_next_use(const struct ebb_cuda_follow *f, uint32_t b) { (void)f; (void)b; return UINT64_MAX; }
uint64_t ebb__follow_place(const struct ebb_cuda_follow *f, uint64_t b, uint64_t *p) { (void)f; (void)b; *p = 0; return EBB_SCRIPT_NO_PLACE; }
struct cuda_follow_counts ebb__follow_counts(const struct ebb_cuda_follow *f) { (void)f; return (struct cuda_follow_counts){0}; }
enum ebb_status ebb__clock_create(const struct ebb_cuda_driver *d, struct ebb_ring *r, struct ebb_cuda_clock **c, struct ebb_error *e) { (void)d; (void)e; *c = calloc(1, sizeof **c); (*c)->ring = r; return EBB_OK; }
void ebb__clock_destroy(struct ebb_cuda_clock *c) { free(c); }
void ebb__clock_abandon(struct ebb_cuda_clock *c) { (void)c; }
void ebb__clock_observe(struct ebb_cuda_clock *c, bool on) { (void)c; (void)on; }
bool ebb__clock_is_observing(const struct ebb_cuda_clock *c) { (void)c; return false; }
void ebb__clock_event(struct ebb_cuda_clock *c, const struct ebb_event *e) { (void)c; (void)e; }
void ebb__clock_work_begin(struct ebb_cuda_clock *c, CUstream s, const struct ebb_event *u, size_t n, bool t) { (void)c; (void)s; (void)u; (void)n; (void)t; }
void ebb__clock_work_end(struct ebb_cuda_clock *c, CUstream s, bool q) { (void)c; (void)s; (void)q; }
uint64_t ebb__clock_drain(struct ebb_cuda_clock *c) { (void)c; return UINT64_MAX; }
