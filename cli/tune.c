#include "tune.h"

#include "base/tuning.h"
#include "command.h"
#include "runtime/protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *value_text(const struct ebb_tuning_row *row, double value, char text[32])
{
    return ebb__tuning_format(row, value, text, 32);
}

static void help_print(void)
{
    size_t count;
    const struct ebb_tuning_row *rows = ebb__tuning_rows(&count);
    char value[32], least[32], most[32];
    puts(
        "--tune NAME=VALUE, any number of times. Bytes may have K, M, G, T behind them, ns may have\n"
        "us, ms, s. What half and twice of a row do: bench/ablate.py --only NAME, docs/tuning.md.\n");
    for (size_t i = 0; i < count; i++) {
        const struct ebb_tuning_row *row = &rows[i];
        printf("%s = %s %s (%s to %s; acts on %s)\n    %s\n", row->name,
               value_text(row, row->value, value), row->unit, value_text(row, row->least, least),
               value_text(row, row->most, most), row->acts == EBB_TUNING_PLAN ? "plans" : "runs",
               row->reason);
    }
}

int ebb__tune_take(const char *command, const char *value)
{
    struct ebb_error error;
    struct ebb_message welcome;
    if (strcmp(value, "help") == 0) {
        help_print();
        return 0;
    }
    if (ebb__tuning_set(value, &error) != EBB_OK) {
        fprintf(stderr, "ebb: %s: %s: %s\n", command, error.what, error.why);
        return ebb_status_exit_code(EBB_ERR_ARGUMENT);
    }
    if (!ebb__tuning_write(welcome.text, sizeof welcome.text)) {
        fprintf(stderr, "ebb: %s: --tune: too many rows differ: %zu bytes of them at most\n",
                command, sizeof welcome.text - 1);
        return ebb_status_exit_code(EBB_ERR_ARGUMENT);
    }
    return -1;
}

json_t *ebb__tune_json(void)
{
    size_t count;
    const struct ebb_tuning_row *rows = ebb__tuning_rows(&count);
    char table[24];
    snprintf(table, sizeof table, "%016" PRIx64, ebb__tuning_table());
    json_t *changed = json_object();
    for (size_t i = 0; i < count; i++) {
        double value = ebb__tuning_value(&rows[i]);
        if (value != rows[i].value)
            json_object_set_new(changed, rows[i].name,
                                rows[i].real ? json_real(value) : json_integer((json_int_t)value));
    }
    json_t *object = json_object();
    json_object_set_new(object, "table", json_string(table));
    json_object_set_new(object, "changed", changed);
    return object;
}
