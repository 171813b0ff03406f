/* Decides which repetition is the program's iteration.
 *
 * A repetition becomes the program's in two cases. It has covered a few symbols and nothing else
 * was known, or it covers more than two iterations of the previous one. A repetition within an
 * iteration cannot last that long. Iterations recorded before the new one began are kept. But those
 * of repetitions that turn out to be loops within it are dropped everywhere.
 *
 * What repeats twice and more within a longer repetition stays the iteration (watch_phrases.c). It
 * does not if its blocks have other lifetimes each time: it is a micro-batch (lives.h).
 *
 * Marks that the program sets are always trusted. Marks by accesses are not: a loop over the
 * weights during initialisation looks like iterations, too, and training, which allocates, follows
 * it. Which of the two identifies iterations depends on how often the program allocates.
 *
 * If nothing repeats exactly, a landmark is searched from time to time. No search is made while an
 * exact repetition is in force, so that a strictly periodic program does not pay for it. */
#include "base/tuning.h"

#include "landmark.h"
#include "lives.h"
#include "watch_state.h"

enum {
    LEAST_PAUSE = 64,  /* least number of symbols between two searches for a landmark */
    MOST_PAUSE = 4096, /* the most; in between, an eighth of the symbols seen */
};

static bool is_about(size_t symbols, size_t period)
{
    size_t tolerance = ebb__landmark_tolerance(period);
    return symbols <= period + tolerance && symbols + tolerance >= period;
}

/* True if the repetition is that of `template`, possibly at another phase. If it was announced
 * early, not much more than a period has been seen. */
static bool is_known(const struct ebb_watch *watch, const struct ebb_template *template,
                     const struct ebb_repetition *repetition)
{
    if (template->kind != repetition->kind)
        return false;
    if (template->landmark_bytes) /* the order was the same for a while by chance */
        return is_about(repetition->period_symbols, template->period_symbols);
    if (template->period_symbols != repetition->period_symbols)
        return false;
    if (template->kind == EBB_SYMBOL_MARK)
        return true;
    const struct ebb_rolling *rolling = watch->stream.symbols[template->kind].rolling;
    size_t first = repetition->first_symbol, next = first + template->period_symbols, at = first;
    while (at < next && ebb__rolling_turned(rolling, first, at, next) != template->hash)
        at++;
    return at < next;
}

static size_t known_count(const struct ebb_watch *watch)
{
    return watch->pattern_count < KNOWN_PATTERNS ? watch->pattern_count : KNOWN_PATTERNS;
}

/* The known template that has `age` newer ones; *pattern is its number. */
static const struct ebb_template *known_of_age(const struct ebb_watch *watch, size_t age,
                                               uint32_t *pattern)
{
    *pattern = (uint32_t)(watch->pattern_count - 1 - age);
    return &watch->known[*pattern % KNOWN_PATTERNS];
}

void ebb__watch_note_alloc(struct ebb_watch *watch, uint64_t size_bytes)
{
    for (size_t i = 0; i < known_count(watch); i++)
        if (watch->known[i].landmark_bytes == size_bytes) {
            watch->landmarks[i].apart = watch->alloc_count - watch->landmarks[i].at;
            watch->landmarks[i].at = watch->alloc_count;
        }
    watch->alloc_count++;
}

/* True if a repetition of this short period, seen over `covered` allocations, is a part of
 * iterations that the program still executes. */
static bool is_part_of_known(const struct ebb_watch *watch, size_t period, size_t covered)
{
    for (size_t i = 0; i < known_count(watch); i++) {
        size_t whole = watch->known[i].period_symbols, tolerance = ebb__landmark_tolerance(whole);
        const struct landmark_seen *seen = &watch->landmarks[i];
        bool goes_on =
            seen->apart + tolerance >= whole && watch->alloc_count - seen->at <= whole + tolerance;
        if (watch->known[i].landmark_bytes && goes_on && period + tolerance < whole &&
            covered <= 2 * whole + whole / 2)
            return true;
    }
    return false;
}

/* Makes `template` the program's iteration, with symbols from `first_symbol` on. If the program
 * returns to an earlier one, its old template is kept. */
static void adopt(struct ebb_watch *watch, const struct ebb_template *template, uint32_t pattern,
                  size_t first_symbol, size_t window_events)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[template->kind];
    uint64_t begin = watch->event_base + symbols->events.items[first_symbol];
    if (!watch->held) /* a held iteration stays valid, whatever contains it */
        ebb__watch_drop(watch, pattern, window_events, begin);
    watch->template = *template;
    watch->next_symbol = ebb__watch_first_unrecorded(watch, template->kind, watch->event_base);
    watch->window_events = window_events;
    watch->period_clock_events = 0;
    watch->pattern = pattern;
    watch->known[pattern % KNOWN_PATTERNS] = *template;
    if (pattern == watch->pattern_count) {
        watch->accumulates[pattern % KNOWN_PATTERNS] = false;
        watch->pattern_count++;
    }
    watch->found = true;
    watch->held = watch->early = watch->recurring.in_force = false;
}

/* Was it announced before its second period is complete? */
static bool is_early(const struct ebb_repetition *repetition)
{
    return repetition->last_symbol - repetition->first_symbol < 2 * repetition->period_symbols;
}

bool ebb__watch_marks_by_accesses(const struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    const struct ebb_symbols *marks = &stream->symbols[EBB_SYMBOL_MARK];
    return marks->events.count &&
           ebb__iteration_is_by_accesses(
               stream->events.items[marks->events.items[marks->events.count - 1]].size_bytes);
}

/* True if marks identify iterations, rather than allocations, of which there are `allocs` in
 * one. */
static bool marks_prevail(const struct ebb_watch *watch, size_t allocs, size_t window_events)
{
    return !ebb__watch_marks_by_accesses(watch) ||
           allocs * ebb__tuning()->uses_an_allocation <= window_events;
}

/* True if a repetition of `period_allocs` allocations covers a whole iteration found by accesses,
 * with `allocs` allocations. It is then that iteration, known exactly. */
static bool covers_marks(const struct ebb_watch *watch, size_t period_allocs, size_t allocs)
{
    return ebb__watch_marks_by_accesses(watch) &&
           period_allocs >= ebb__tuning()->clock_allocations && period_allocs * 4 >= allocs * 3;
}

/* Allocations before the mark that is `age` symbols older than the newest. */
static size_t allocs_before_mark(const struct ebb_watch *watch, size_t age)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[EBB_SYMBOL_MARK];
    return ebb__stream_allocs_before(&watch->stream,
                                     symbols->events.items[symbols->events.count - 1 - age]);
}

/* Does the exact repetition of `period` allocations tell the iteration rather than marks by
 * accesses? It does if it covers the newest iteration between such marks, and if that is not as
 * long as the one before. The first mark may be of a loop at the program's start. */
static bool allocs_prevail(const struct ebb_watch *watch, size_t period,
                           const struct ebb_repetition *marks)
{
    size_t apart = marks->period_symbols;
    if (!ebb__watch_marks_by_accesses(watch) || period < ebb__tuning()->clock_allocations)
        return false;
    if (watch->stream.symbols[EBB_SYMBOL_MARK].events.count <= 2 * apart)
        return true;
    size_t newest = allocs_before_mark(watch, 0), middle = allocs_before_mark(watch, apart);
    size_t oldest = allocs_before_mark(watch, 2 * apart);
    return !is_about(newest - middle, middle - oldest) ||
           covers_marks(watch, period, newest - middle);
}

static size_t window_of(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t symbols = repetition->last_symbol - repetition->first_symbol;
    return (size_t)((double)ebb__stream_coverage(&watch->stream, repetition) / (double)symbols *
                    (double)repetition->period_symbols);
}

/* Makes the repetition, known or new, the program's iteration. */
static void take(struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    struct ebb_template template = ebb__stream_template(&watch->stream, repetition, 1);
    uint32_t pattern = (uint32_t)watch->pattern_count;
    for (size_t age = 0; age < known_count(watch); age++) {
        uint32_t number;
        const struct ebb_template *known = known_of_age(watch, age, &number);
        if (is_known(watch, known, repetition)) {
            pattern = number;
            template = *known;
            break;
        }
    }
    adopt(watch, &template, pattern, repetition->first_symbol, window_of(watch, repetition));
    watch->early = is_early(repetition);
}

enum { FEW_IN_FRONT = 8 }; /* an optimizer makes some blocks a weight, of which some stay */

/* Has one of the few blocks in front of the repetition not been freed? */
static bool follows_what_stays(const struct ebb_watch *watch,
                               const struct ebb_repetition *repetition)
{
    const struct ebb_stream *stream = &watch->stream;
    for (size_t at = repetition->first_symbol, few = FEW_IN_FRONT; at > 0 && few > 0; at--, few--) {
        size_t event = stream->symbols[repetition->kind].events.items[at - 1];
        size_t alloc = ebb__stream_allocs_before(stream, event);
        if (stream->allocs.items[alloc].free_event == EBB_NOT_FREED)
            return true;
    }
    return false;
}

/* True if the repetition is the template's, so that its order does not vary after all. The first
 * iterations may have additional permanent allocations. They delay the exact repetition, but a
 * landmark is found. This is believed once: if threads interleave, two iterations may be equal by
 * chance. Parts of them often are, so it is not believed early unless something permanent was in
 * the way. */
static bool proves_ordered(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    const struct ebb_template *template = &watch->template;
    return watch->found && template->landmark_bytes && !watch->was_ordered &&
           repetition->kind == EBB_SYMBOL_ALLOC &&
           is_about(repetition->period_symbols, template->period_symbols) &&
           (!is_early(repetition) || follows_what_stays(watch, repetition));
}

/* Is the template only believed, and the repetition about as long? That may be what the template
 * was mistaken for: the first iteration also allocates what lasts. */
static bool corrects(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    return watch->early && repetition->kind == EBB_SYMBOL_ALLOC &&
           2 * repetition->period_symbols > watch->template.period_symbols;
}

enum { LOOP_SHARE = 16 }; /* the iteration around a loop of layers is so many times as long */

/* Is the template a micro-batch of the iteration that has repeated? It makes up half of it, and
 * its blocks have other lifetimes from one to the next. O(symbols of two periods), once a
 * repetition. */
static bool is_micro_batch(struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    const struct ebb_template *template = &watch->template;
    if (!watch->found || template->kind != EBB_SYMBOL_ALLOC || template->landmark_bytes ||
        repetition->kind != EBB_SYMBOL_ALLOC || is_early(repetition) ||
        repetition->period_symbols < 2 * template->period_symbols)
        return false;
    struct micro_batch *judged = &watch->micro_batch;
    if (judged->found_at_symbol != repetition->found_at_symbol)
        *judged = (struct micro_batch){
            .found_at_symbol = repetition->found_at_symbol,
            .is_one = ebb__lives_differ(&watch->stream, template, repetition->first_symbol,
                                        repetition->last_symbol),
        };
    return judged->is_one;
}

/* Does the repetition cover more than so many iterations of the template? In allocations, if these
 * tell both. Of events there are more where accesses are observed. */
static bool covers(const struct ebb_watch *watch, const struct ebb_repetition *repetition,
                   size_t iterations)
{
    if (repetition->kind == EBB_SYMBOL_ALLOC && watch->template.kind == EBB_SYMBOL_ALLOC)
        return repetition->last_symbol - repetition->first_symbol >
               iterations * watch->template.period_symbols;
    return ebb__stream_coverage(&watch->stream, repetition) > iterations * watch->window_events;
}

/* Does the held iteration stay, although something else has repeated? */
static bool stays(struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    bool chance = ebb__watch_is_by_chance(watch, repetition);
    bool short_lived = !covers(watch, repetition, (size_t)ebb__tuning()->held_iterations);
    return watch->held && (chance || (short_lived && !ebb__watch_has_changed(watch, repetition))) &&
           !is_micro_batch(watch, repetition);
}

/* Is the template only believed, and the repetition another one of the same length? Then the order
 * varies, and parts that are equal prove nothing. */
static bool refutes(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    return watch->early && watch->template.period_symbols == repetition->period_symbols &&
           !is_known(watch, &watch->template, repetition);
}

/* Was the repetition announced before its second period is complete, while a part of it is known?
 * The part is no mere loop, and makes up half of it. Then something else that came once looks like
 * a longer iteration for a while. O(period), once a repetition. */
static bool is_premature(struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t known = watch->template.period_symbols;
    bool is_loop = known < (size_t)ebb__tuning()->early_period &&
                   LOOP_SHARE * known <= repetition->period_symbols;
    if (!is_early(repetition) || !watch->found || watch->template.kind != EBB_SYMBOL_ALLOC)
        return false;
    struct early *judged = &watch->early_judged;
    if (judged->found_at_symbol != repetition->found_at_symbol)
        *judged = (struct early){
            .found_at_symbol = repetition->found_at_symbol,
            .refutes = refutes(watch, repetition),
            .is_made_up = watch->template.landmark_bytes || ebb__watch_makes_up(watch, repetition),
        };
    if (is_loop || proves_ordered(watch, repetition) ||
        (corrects(watch, repetition) && !judged->refutes))
        return false;
    return judged->refutes || judged->is_made_up;
}

/* Accesses are clock events only if there are no allocations: the first two periods are checked. */
static bool has_allocs(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t first = watch->stream.symbols[repetition->kind].events.items[repetition->first_symbol];
    return ebb__stream_allocs_before(&watch->stream, first) < watch->stream.allocs.count;
}

/* Judges the repetition in force if it is new. */
void ebb__watch_consider(struct ebb_watch *watch, enum ebb_symbol_kind kind)
{
    const struct ebb_repetition *repetition = &watch->stream.current[kind];
    if (repetition->period_symbols == 0 || watch->considered[kind] == repetition->found_at_symbol ||
        is_premature(watch, repetition))
        return;
    bool marked = watch->found && watch->template.kind == EBB_SYMBOL_MARK;
    bool whole =
        marked && kind == EBB_SYMBOL_ALLOC &&
        covers_marks(watch, repetition->period_symbols, ebb__watch_allocs_of_newest(watch));
    if (marked && kind != EBB_SYMBOL_MARK && !whole &&
        (kind != EBB_SYMBOL_ALLOC ||
         marks_prevail(watch, repetition->period_symbols, watch->window_events)))
        return;
    if (kind == EBB_SYMBOL_MARK && watch->found && watch->template.kind == EBB_SYMBOL_ALLOC) {
        size_t period = watch->template.period_symbols;
        bool exact = watch->template.landmark_bytes == 0;
        if (!marks_prevail(watch, period, window_of(watch, repetition)) ||
            (exact && allocs_prevail(watch, period, repetition)))
            return;
    }
    size_t symbols = repetition->last_symbol - repetition->first_symbol;
    if (kind != EBB_SYMBOL_MARK) {
        if (symbols < ebb__tuning()->smallest_repetition)
            return;
        if (watch->found && !whole && !corrects(watch, repetition) &&
            !proves_ordered(watch, repetition) &&
            (!covers(watch, repetition, 2) || stays(watch, repetition)))
            return;
        if (kind == EBB_SYMBOL_ALLOC &&
            is_part_of_known(watch, repetition->period_symbols, symbols))
            return;
        if (kind == EBB_SYMBOL_ACCESS && has_allocs(watch, repetition))
            return;
    }
    watch->considered[kind] = repetition->found_at_symbol;
    if (proves_ordered(watch, repetition)) {
        struct ebb_template exact = ebb__stream_template(&watch->stream, repetition, 1);
        watch->was_ordered = true;
        adopt(watch, &exact, (uint32_t)watch->pattern_count, repetition->first_symbol,
              window_of(watch, repetition));
        watch->early = is_early(repetition);
        return;
    }
    if (watch->found && is_known(watch, &watch->template, repetition)) {
        watch->early = watch->early && is_early(repetition);
        return;
    }
    bool accumulates = is_micro_batch(watch, repetition);
    if (accumulates)
        watch->held = false;
    else if (ebb__watch_is_composed(watch, repetition))
        return;
    take(watch, repetition);
    if (accumulates)
        watch->accumulates[watch->pattern % KNOWN_PATTERNS] = true;
}

void ebb__watch_take_longer(struct ebb_watch *watch)
{
    const struct ebb_repetition *current = &watch->stream.current[EBB_SYMBOL_ALLOC];
    if (watch->held && ebb__watch_is_composed(watch, current))
        take(watch, current);
}

void ebb__watch_consider_recurring(struct ebb_watch *watch)
{
    struct ebb_watch_phrase phrase;
    if (!ebb__watch_recurring(watch, &phrase))
        return;
    const uint32_t *events = watch->stream.symbols[EBB_SYMBOL_ALLOC].events.items;
    const struct ebb_template made = ebb__watch_phrase_template(&phrase);
    if (phrase.replaces) /* else a step that has followed itself by chance stays the iteration */
        adopt(watch, &made, (uint32_t)watch->pattern_count, phrase.first,
              events[phrase.last] - events[phrase.first]);
    watch->recurring.in_force = true;
    watch->recurring.told_symbol = phrase.last;
}

/* If nothing repeats exactly, searches for a landmark. It is not used if exact iterations were seen
 * within the stretch that it would cover, unless they are only a part of it. */
enum ebb_status ebb__watch_look_for_landmark(struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    const struct ebb_symbols *symbols = &stream->symbols[EBB_SYMBOL_ALLOC];
    size_t count = symbols->events.count, pause = count / 8;
    bool marked = watch->found && watch->template.kind == EBB_SYMBOL_MARK;
    if (count < watch->next_look || stream->current[EBB_SYMBOL_ALLOC].period_symbols ||
        ebb__watch_still_recurs(watch) || (marked && !ebb__watch_marks_by_accesses(watch)))
        return EBB_OK;
    pause = pause < LEAST_PAUSE ? LEAST_PAUSE : pause > MOST_PAUSE ? MOST_PAUSE : pause;
    watch->next_look = count + pause;
    struct ebb_landmark landmark;
    bool found;
    enum ebb_status status = ebb__landmark_find(symbols->detector, &landmark, &found);
    if (status || !found ||
        (marked && marks_prevail(watch, landmark.period_symbols, watch->window_events)))
        return status;
    const struct ebb_template made = {.kind = EBB_SYMBOL_ALLOC,
                                      .period_symbols = landmark.period_symbols,
                                      .landmark_bytes = landmark.size_bytes};
    if (watch->found && watch->template.landmark_bytes &&
        is_about(made.period_symbols, watch->template.period_symbols))
        return EBB_OK;
    if (is_part_of_known(watch, made.period_symbols, landmark.last_symbol - landmark.first_symbol))
        return EBB_OK;
    size_t first = symbols->events.items[landmark.first_symbol];
    size_t covered = symbols->events.items[landmark.last_symbol] - first;
    if (ebb__watch_outlasts(watch, covered))
        return EBB_OK;
    if (watch->found && watch->iterations.count &&
        watch->iterations.items[watch->iterations.count - 1].last_event >
            watch->event_base + first &&
        covered <= 5 * watch->window_events)
        return EBB_OK;
    uint32_t pattern = (uint32_t)watch->pattern_count;
    for (size_t age = 0; age < known_count(watch); age++) {
        uint32_t number;
        const struct ebb_template *known = known_of_age(watch, age, &number);
        if (known->landmark_bytes == made.landmark_bytes &&
            is_about(made.period_symbols, known->period_symbols)) {
            pattern = number;
            break;
        }
    }
    adopt(watch, &made, pattern, landmark.first_symbol, covered / 2);
    watch->landmarks[pattern % KNOWN_PATTERNS] = (struct landmark_seen){
        .at = watch->alloc_count - (count - landmark.last_symbol),
        .apart = landmark.period_symbols,
    };
    return EBB_OK;
}
