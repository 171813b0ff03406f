/* The view of `ebb top`: the text, on a screen that is drawn twice a second. */
#include "top.h"

#include <curses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>

enum { COLOR_WELL = 1, COLOR_ILL = 2 };

static volatile sig_atomic_t ended; /* a signal handler has no other way to say something */

static void end(int number)
{
    ended = number;
}

static bool has_color(void)
{
    const char *refused = getenv("NO_COLOR");
    return has_colors() && !(refused && *refused);
}

static void draw_line(int row, const char *line, size_t length, bool colored)
{
    bool head = line[0] != ' ';
    bool ill = strstr(line, "EXCEEDED") != NULL && strstr(line, "EXCEEDED") < line + length;
    int color = !colored ? 0 : ill ? COLOR_PAIR(COLOR_ILL) : COLOR_PAIR(COLOR_WELL);
    bool bar = memmem(line, length, "[", 1) && strncmp(line, "  resident", 10) == 0;
    attr_t look = (head || ill ? A_BOLD : 0) | (bar || ill ? (attr_t)color : 0);
    attron(look);
    mvaddnstr(row, 0, line, (int)length);
    attroff(look);
}

/* Draws the text from line `first` on. Returns its number of lines. */
static int draw(const struct ebb_top *top, int first, bool colored)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return 0;
    ebb__top_text(top, COLS > 1 ? COLS - 1 : 1, out);
    fclose(out);
    erase();
    attron(A_REVERSE);
    mvprintw(0, 0, " ebb top, runs: %zu; q quits, arrows scroll ", top->count);
    attroff(A_REVERSE);
    int number = 0;
    for (const char *line = text; *line; number++) {
        size_t length = strcspn(line, "\n");
        if (number >= first && number - first + 2 < LINES)
            draw_line(number - first + 2, line, length, colored);
        line += length + (line[length] == '\n');
    }
    refresh();
    free(text);
    return number;
}

static enum ebb_status watch(struct ebb_top *top, bool colored, struct ebb_error *error)
{
    int first = 0;
    while (!ended) {
        enum ebb_status status = ebb__top_look(top, error);
        if (status)
            return status;
        int shown = draw(top, first, colored);
        int key = getch();
        if (key == 'q' || key == 'Q' || key == 27)
            break;
        first += key == KEY_DOWN ? 1 : key == KEY_UP ? -1 : 0;
        first += key == KEY_NPAGE ? LINES - 2 : key == KEY_PPAGE ? 2 - LINES : 0;
        first = first > shown - 1 ? shown - 1 : first;
        first = first < 0 ? 0 : first;
    }
    return EBB_OK;
}

enum ebb_status ebb__top_view(struct ebb_top *top, struct ebb_error *error)
{
    int reason;
    if (setupterm(NULL, 1, &reason) != OK) {
        ebb__fail(error, EBB_ERR_IO, "terminal", "its kind, TERM=%s, is not known",
                  getenv("TERM") ? getenv("TERM") : "");
        ebb__error_set_remedy(error, "set TERM, or give --once");
        return EBB_ERR_IO;
    }
    const struct sigaction ending = {.sa_handler = end};
    sigaction(SIGINT, &ending, NULL);
    sigaction(SIGTERM, &ending, NULL);
    sigaction(SIGHUP, &ending, NULL);
    initscr();
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    set_escdelay(25);
    timeout(EBB_TOP_INTERVAL_MS);
    bool colored = has_color();
    if (colored) {
        start_color();
        use_default_colors();
        init_pair(COLOR_WELL, COLOR_GREEN, -1);
        init_pair(COLOR_ILL, COLOR_RED, -1);
    }
    enum ebb_status status = watch(top, colored, error);
    endwin();
    return status;
}
