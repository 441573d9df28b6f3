/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/view/history.h"
#include "runtime/view/job.h"
#include "runtime/view/picture.h"
#include "runtime/view/screen.h"
#include "runtime/view/terminal.h"
#include "topology/base/option_words.h"

/* plait-watch: shows a run in the terminal, only from its metrics file. */

static const char help[] =
    "usage: plait-watch [DIR|FILE|JOBID]\n"
    "Show a run while it trains, from the metrics that plait-train logs\n"
    "(log.metrics): FILE, or the newest of DIR (.), or that of a job of\n"
    "Slurm's in its working directory. Press q or Ctrl-C to quit.\n"
    "\n"
    "  --help, --version\n";

/* -- the command ----------------------------------------------------------- */

static int show(const struct plait_history *h, int width, int height,
                const char *begin, const char *end, struct plait_error *err)
{
    struct plait_screen *s = plait_picture_draw(h, width, height);

    if (!s)
        return plait_errorf(err, "out of memory");
    fputs(begin, stdout);
    plait_screen_print(s, end, stdout);
    plait_screen_destroy(s);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return plait_errorf(err, "standard output: %s", strerror(errno));
}

static int watch(struct plait_history *h, struct plait_error *err)
{
    int rc = 0, width, height;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        rc = show(h, 80, 24, "", "\n", err);
        putchar('\n');
        return rc;
    }
    if (plait_terminal_open() < 0)
        return plait_errorf(err, "terminal: %s", strerror(errno));
    do {
        plait_terminal_size(&width, &height);
        /* Clear the rest of each line, and what is below the picture. */
        rc = show(h, width, height, "\033[H", "\033[K\r\n", err);
        fputs("\033[J", stdout);
        fflush(stdout);
        if (rc < 0 || !plait_terminal_wait(1))
            break;
        rc = plait_history_update(h, err);
    } while (rc >= 0);
    plait_terminal_close();
    return rc < 0 ? -1 : 0;
}

/* The index of the file that was written last. */
static size_t newest(char **files, size_t n)
{
    struct timespec best = {0}, at;
    size_t found = 0;
    struct stat st;

    for (size_t i = 0; i < n; i++) {
        if (stat(files[i], &st) < 0)
            continue;
        at = st.st_mtim;
        if (at.tv_sec > best.tv_sec ||
            (at.tv_sec == best.tv_sec && at.tv_nsec > best.tv_nsec)) {
            best = at;
            found = i;
        }
    }
    return found;
}

static int watch_path(const char *path, struct plait_error *err)
{
    struct plait_history *h = NULL;
    char **files = NULL;
    size_t nfiles = 0;
    int rc = plait_job_is_id(path)
                 ? plait_job_find(path, &files, &nfiles, err)
                 : plait_history_find(path, &files, &nfiles, err);

    if (rc == 0) {
        h = plait_history_create(files[newest(files, nfiles)], err);
        rc = h ? watch(h, err) : -1;
        if (rc == 0)
            plait_history_say_skipped(h, "plait-watch");
    }
    plait_history_destroy(h);
    for (size_t i = 0; i < nfiles; i++)
        free(files[i]);
    free(files);
    return rc;
}

static int print_text(const char *text)
{
    fputs(text, stdout);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "plait-watch: standard output: %s\n", strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct plait_error err = {""};
    char advice[PLAIT_OPTION_ADVICE];
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h')
            return print_text(help);
        if (option == 'v')
            return print_text("plait-watch " PACKAGE_VERSION "\n");
        plait_option_advise(options, plait_option_word(argc, argv), advice);
        fprintf(stderr, "plait-watch: unknown option %s%s\n",
                plait_option_word(argc, argv), advice);
        return 2;
    }
    if (argc - optind > 1) {
        fprintf(stderr, "plait-watch: give one DIR, FILE or JOBID; see "
                        "--help\n");
        return 2;
    }
    if (watch_path(optind < argc ? argv[optind] : ".", &err) == 0)
        return 0;
    fprintf(stderr, "plait-watch: %s\n", err.text);
    return 1;
}
