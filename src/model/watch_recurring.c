/* Steps that recur in any order: batches of some lengths, or of any, tasks in turn by chance.
 *
 * No two steps that follow each other are equal, so nothing repeats. But live bytes tell where a
 * step ends: they are as low as after other steps. What lies between two such troughs is a phrase.
 * One that has come twice is an iteration, and so is each other one. Where the order within a step
 * varies, phrases allocate as much in another order: then none of them is taken. If two in a row
 * differ only in sizes, their shape is the iteration (shapes.h). */
#include "base/tuning.h"
#include "watch_state.h"

enum {
    SWING_DIVISOR = 8,  /* of the peak: live bytes rise and fall so much around a trough */
    LEVEL_DIVISOR = 32, /* of the peak: troughs of steps are equal but for so much */
    AHEAD = 8,          /* a trough in a step has a lower one so near behind it, */
    ENOUGH_AHEAD = 4,   /* mostly so near, */
    BACK = 4,           /* and before it */
    LEAST_PHRASES = 4,  /* seen before one is taken: by then nothing repeats */
    PART_DIVISOR = 4,   /* what swings so much less than others is an evaluation */
    LATE_ALLOCS = 2,    /* of a phrase: it is no known one then, and observing begins */
    SEVERAL = 3,        /* phrases, each behind different ones, are steps in any order */
    LOOP_DIVISOR = 4,   /* a repetition so much shorter than a phrase is a loop in it */
};

/* Live bytes turn: is there a new trough? */
static bool note_turn(struct ebb_watch *watch)
{
    struct recurring *recurring = &watch->recurring;
    const struct ebb_symbols *symbols = &watch->stream.symbols[EBB_SYMBOL_ALLOC];
    size_t newest = symbols->events.count - 1;
    uint64_t after, bytes = ebb__detector_symbol(symbols->detector, newest, &after);
    uint64_t before = after - bytes, swing = watch->stream.peak_bytes / SWING_DIVISOR;
    uint64_t made = recurring->made_bytes;
    recurring->made_bytes += bytes;
    if (recurring->is_rising) {
        if (before + swing >= recurring->turn_bytes) {
            recurring->turn_bytes = after > recurring->turn_bytes ? after : recurring->turn_bytes;
            return false;
        }
        if (recurring->count)
            recurring->troughs[recurring->count - 1].peak_bytes = recurring->turn_bytes;
        recurring->is_rising = false;
        recurring->turn_bytes = before;
    }
    if (before <= recurring->turn_bytes) {
        recurring->turn_bytes = before;
        recurring->turn_symbol = newest;
        recurring->turn_made_bytes = made;
    }
    if (after <= recurring->turn_bytes + swing)
        return false;
    if (recurring->count == KEPT_TROUGHS) {
        recurring->count--;
        for (size_t i = 0; i < recurring->count; i++)
            recurring->troughs[i] = recurring->troughs[i + 1];
    }
    recurring->troughs[recurring->count++] =
        (struct trough){.symbol = recurring->turn_symbol,
                        .bytes = recurring->turn_bytes,
                        .made_bytes = recurring->turn_made_bytes};
    recurring->is_rising = recurring->has_news = true;
    recurring->turn_bytes = after;
    return true;
}

/* Is a trough in [first, last) lower than this? */
static bool is_lower_one(const struct ebb_watch *watch, uint64_t bytes, size_t first, size_t last)
{
    uint64_t spare = watch->stream.peak_bytes / LEVEL_DIVISOR;
    for (size_t i = first; i < last; i++)
        if (bytes > watch->recurring.troughs[i].bytes + spare)
            return true;
    return false;
}

/* Does a step end at trough `at`? Not if a lower one follows. While few follow, not if a lower one
 * stands before it: later ones may be higher for good, since an optimizer has made its states. */
static bool ends_step(const struct ebb_watch *watch, size_t at)
{
    uint64_t bytes = watch->recurring.troughs[at].bytes;
    size_t known = watch->recurring.count - at - 1, behind = known < AHEAD ? known : AHEAD;
    if (is_lower_one(watch, bytes, at + 1, at + 1 + behind))
        return false;
    return known >= ENOUGH_AHEAD || !is_lower_one(watch, bytes, at > BACK ? at - BACK : 0, at);
}

/* The phrase between two troughs. */
static struct ebb_watch_phrase phrase_of(const struct ebb_watch *watch, size_t begin, size_t end)
{
    const struct trough *troughs = watch->recurring.troughs;
    struct ebb_watch_phrase phrase = {
        .first = troughs[begin].symbol,
        .last = troughs[end].symbol,
        .bytes = troughs[end].made_bytes - troughs[begin].made_bytes,
    };
    phrase.hash = ebb__rolling_range(watch->stream.symbols[EBB_SYMBOL_ALLOC].rolling, phrase.first,
                                     phrase.last);
    if (watch->stream.shapes)
        phrase.shape = ebb__rolling_range(watch->stream.shapes, phrase.first, phrase.last);
    for (size_t i = begin; i < end; i++)
        if (troughs[i].peak_bytes > troughs[begin].bytes + phrase.swing_bytes)
            phrase.swing_bytes = troughs[i].peak_bytes - troughs[begin].bytes;
    return phrase;
}

/* The phrase that begins at trough *at or later. Then *at is its end. */
static bool next_phrase(const struct ebb_watch *watch, size_t *at, struct ebb_watch_phrase *phrase)
{
    const struct recurring *recurring = &watch->recurring;
    size_t begin = *at;
    while (begin < recurring->count && !ends_step(watch, begin))
        begin++;
    size_t end = begin + 1;
    while (end < recurring->count && !ends_step(watch, end))
        end++;
    if (end >= recurring->count)
        return false;
    *at = end;
    *phrase = phrase_of(watch, begin, end);
    return true;
}

static bool is_same(const struct ebb_watch_phrase *one, const struct ebb_watch_phrase *other)
{
    return one->hash == other->hash && one->last - one->first == other->last - other->first;
}

/* All phrases that are kept, the oldest first. */
static size_t collect(const struct ebb_watch *watch, struct ebb_watch_phrase phrases[KEPT_TROUGHS])
{
    size_t count = 0;
    for (size_t at = 0; count < KEPT_TROUGHS && next_phrase(watch, &at, &phrases[count]);)
        count++;
    return count;
}

/* Has the newest phrase come before? Not if it is an evaluation beside others, or if the order
 * within phrases varies. */
static bool has_recurred(const struct ebb_watch_phrase *phrases, size_t count)
{
    const struct ebb_watch_phrase *newest = &phrases[count - 1], *other;
    uint64_t most_bytes = 0;
    bool again = false;
    for (other = phrases; other < newest; other++) {
        if (other->last - other->first == newest->last - newest->first &&
            other->bytes == newest->bytes && other->hash != newest->hash)
            return false;
        again |= is_same(other, newest);
        most_bytes = other->swing_bytes > most_bytes ? other->swing_bytes : most_bytes;
    }
    return again && newest->swing_bytes * PART_DIVISOR >= most_bytes;
}

/* Is the template a loop in the phrase? */
static bool is_loop_in(const struct ebb_watch *watch, const struct ebb_watch_phrase *phrase)
{
    const struct ebb_template *template = &watch->template;
    return template->kind == EBB_SYMBOL_ALLOC && !template->landmark_bytes &&
           template->period_symbols * LOOP_DIVISOR <= phrase->last - phrase->first;
}

/* Is it long enough for an iteration, and nothing in force repeats that is more than a loop in
 * it? */
static bool may_be_iteration(const struct ebb_watch *watch, const struct ebb_watch_phrase *phrase)
{
    size_t symbols = phrase->last - phrase->first;
    size_t repeats = watch->stream.current[EBB_SYMBOL_ALLOC].period_symbols;
    return symbols >= (size_t)ebb__tuning()->early_period && repeats * LOOP_DIVISOR <= symbols;
}

/* Are the two newest phrases one step, but for their sizes? All three troughs around them are as
 * low, and none between them is lower. A lower one that follows shows later that they were
 * micro-batches. */
static bool find_shape(const struct ebb_watch *watch, struct ebb_watch_phrase *phrase)
{
    const struct trough *troughs = watch->recurring.troughs;
    uint64_t spare = watch->stream.peak_bytes / LEVEL_DIVISOR;
    size_t end = watch->recurring.count - 1;
    for (size_t middle = end; watch->stream.shapes && middle-- > 1;) {
        size_t symbols = troughs[end].symbol - troughs[middle].symbol, begin = middle;
        if (is_lower_one(watch, troughs[end].bytes, middle, end))
            return false;
        if (troughs[middle].bytes > troughs[end].bytes + spare)
            continue;
        while (begin > 0 && troughs[middle].symbol - troughs[begin].symbol < symbols)
            begin--;
        if (troughs[middle].symbol - troughs[begin].symbol != symbols ||
            is_lower_one(watch, troughs[end].bytes, begin, middle) ||
            troughs[begin].bytes > troughs[end].bytes + spare)
            continue;
        struct ebb_watch_phrase before = phrase_of(watch, begin, middle);
        *phrase = phrase_of(watch, middle, end);
        phrase->by_shape = true;
        if (phrase->shape == before.shape && phrase->hash != before.hash)
            return true;
    }
    return false;
}

/* Is the template a part of the phrase, which ends with the newest trough? All troughs in it are
 * higher, so they are of micro-batches. */
static bool is_part_of(const struct ebb_watch *watch, const struct ebb_watch_phrase *phrase)
{
    enum { PARTS = 2 };
    const struct trough *troughs = watch->recurring.troughs;
    size_t at = watch->recurring.count - 1;
    uint64_t level = troughs[at].bytes + watch->stream.peak_bytes / LEVEL_DIVISOR;
    while (at-- > 0 && troughs[at].symbol > phrase->first)
        if (troughs[at].bytes <= level)
            return false;
    return watch->template.kind == EBB_SYMBOL_SHAPE &&
           watch->template.period_symbols * PARTS <= phrase->last - phrase->first;
}

/* Has the newest step come before in its shape? A template that is a shape may be a part of it. */
static bool recurs_in_shape(const struct ebb_watch *watch, struct ebb_watch_phrase *phrase)
{
    if (!find_shape(watch, phrase))
        return false;
    phrase->replaces = !watch->found || is_loop_in(watch, phrase) || is_part_of(watch, phrase);
    uint64_t least = watch->recurring.troughs[watch->recurring.count - 1].bytes;
    return phrase->replaces && may_be_iteration(watch, phrase) &&
           least + phrase->swing_bytes * PART_DIVISOR >= watch->stream.peak_bytes;
}

/* Has phrase `at` come before, behind another one than now? */
static bool follows_another(const struct ebb_watch_phrase *phrases, size_t at)
{
    for (size_t i = 1; i < at; i++)
        if (is_same(&phrases[i], &phrases[at]) && !is_same(&phrases[i - 1], &phrases[at - 1]))
            return true;
    return false;
}

/* Do several phrases follow now one and now another one? Else a phrase between iterations follows
 * what it did before. */
static bool come_in_any_order(const struct ebb_watch_phrase *phrases, size_t count)
{
    size_t kinds = 0;
    for (size_t i = 1; i < count && kinds < SEVERAL; i++) {
        bool later = false; /* it is counted there */
        for (size_t other = i + 1; other < count; other++)
            later |= is_same(&phrases[i], &phrases[other]) && follows_another(phrases, other);
        kinds += !later && follows_another(phrases, i);
    }
    return kinds == SEVERAL;
}

bool ebb__watch_recurring(struct ebb_watch *watch, struct ebb_watch_phrase *phrase)
{
    const struct ebb_template *template = &watch->template;
    struct ebb_watch_phrase phrases[KEPT_TROUGHS];
    size_t count;
    if (!note_turn(watch))
        return false;
    if (recurs_in_shape(watch, phrase))
        return true;
    if (watch->recurring.in_force || (count = collect(watch, phrases)) < LEAST_PHRASES ||
        phrases[count - 1].last != watch->recurring.troughs[watch->recurring.count - 1].symbol ||
        !has_recurred(phrases, count))
        return false;
    *phrase = phrases[count - 1];
    bool by_allocs = template->kind == EBB_SYMBOL_ALLOC && !template->landmark_bytes;
    phrase->replaces = !watch->found || is_loop_in(watch, phrase);
    return may_be_iteration(watch, phrase) &&
           (phrase->replaces || (by_allocs && come_in_any_order(phrases, count)));
}

void ebb__watch_forget_turns(struct ebb_watch *watch)
{
    bool in_force = watch->recurring.in_force;
    watch->recurring = (struct recurring){.is_rising = true, .in_force = in_force};
}

/* Were its accesses observed? */
static bool is_traced(const struct ebb_watch *watch, const struct ebb_watch_phrase *phrase)
{
    const uint32_t *events = watch->stream.symbols[EBB_SYMBOL_ALLOC].events.items;
    if (phrase->last - phrase->first <= LATE_ALLOCS)
        return false;
    const struct ebb_window window = {.first = events[phrase->first + LATE_ALLOCS],
                                      .last = events[phrase->last]};
    return ebb__stream_is_traced(&watch->stream, &window);
}

/* Is it the template's? */
static bool is_template(const struct ebb_watch *watch, const struct ebb_watch_phrase *phrase)
{
    const struct ebb_template *template = &watch->template;
    uint64_t hash = template->kind == EBB_SYMBOL_SHAPE ? phrase->shape : phrase->hash;
    return hash == template->hash && phrase->last - phrase->first == template->period_symbols;
}

struct ebb_template ebb__watch_phrase_template(const struct ebb_watch_phrase *phrase)
{
    return (struct ebb_template){
        .kind = phrase->by_shape ? EBB_SYMBOL_SHAPE : EBB_SYMBOL_ALLOC,
        .period_symbols = phrase->last - phrase->first,
        .hash = phrase->by_shape ? phrase->shape : phrase->hash,
    };
}

bool ebb__watch_is_by_chance(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    enum { NO_CHANCE = 4 }; /* steps in any order repeat twice by chance, but not so often */
    size_t symbols = repetition->last_symbol - repetition->first_symbol;
    size_t period = repetition->period_symbols, step = watch->template.period_symbols;
    bool is_of_shape = watch->template.kind == EBB_SYMBOL_SHAPE && period % step == 0;
    return watch->recurring.in_force && (is_of_shape || symbols < NO_CHANCE * period);
}

bool ebb__watch_next_step(struct ebb_watch *watch, struct ebb_watch_phrase *step)
{
    struct ebb_watch_phrase phrases[KEPT_TROUGHS];
    if (!watch->recurring.has_news)
        return false; /* it is asked often */
    size_t count = collect(watch, phrases);
    for (size_t i = 0; i < count; i++) {
        if (phrases[i].last <= watch->recurring.told_symbol)
            continue;
        watch->recurring.told_symbol = phrases[i].last;
        if (is_template(watch, &phrases[i]))
            continue;
        *step = phrases[i];
        for (size_t other = 0; other < i; other++)
            step->again |= is_same(&phrases[other], &phrases[i]);
        for (size_t other = 0; other < count; other++)
            if (is_same(&phrases[other], &phrases[i]) && is_traced(watch, &phrases[other])) {
                step->traced = true;
                step->first = phrases[other].first;
                step->last = phrases[other].last;
            }
        return true;
    }
    watch->recurring.has_news = false;
    return false;
}

bool ebb__watch_still_recurs(const struct ebb_watch *watch)
{
    size_t count = watch->iterations.count;
    uint64_t now = watch->event_base + watch->stream.events.count;
    return watch->recurring.in_force && count &&
           now - watch->iterations.items[count - 1].last_event <=
               KEPT_TROUGHS * watch->window_events;
}

bool ebb__watch_varies(const struct ebb_watch *watch)
{
    return watch->found && watch->template.kind == EBB_SYMBOL_SHAPE;
}

bool ebb__watch_recurs(const struct ebb_watch *watch)
{
    return watch->recurring.in_force;
}
