/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/option.h"
#include "topology/base/option_words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int plait_option_count(const char *option, const char *text, int64_t least,
                       int64_t most, int64_t *value, struct plait_error *err)
{
    char *end;
    long long n;

    errno = 0;
    n = strtoll(text, &end, 10);
    if (errno || *end || end == text || n < least || n > most)
        return plait_errorf(err,
                            "%s must be a whole number from %" PRId64
                            " to %" PRId64 ", not '%s'",
                            option, least, most, text);
    *value = n;
    return 0;
}

int plait_option_number(const char *option, const char *text, double least,
                        double most, double *value, struct plait_error *err)
{
    char *end;
    double x;

    errno = 0;
    x = strtod(text, &end);
    if (errno || *end || end == text || !(x >= least && x <= most))
        return plait_errorf(err, "%s must be a number from %g to %g, not '%s'",
                            option, least, most, text);
    *value = x;
    return 0;
}

int plait_option_device(const char *text, const char **device,
                        struct plait_error *err)
{
    *device = text;
    if (!strcmp(text, "auto") || !strcmp(text, "cuda") || !strcmp(text, "cpu"))
        return 0;
    return plait_errorf(err, "--device must be auto, cuda or cpu, not '%s'",
                        text);
}

int plait_option_comm(const char *text, const char **comm,
                      struct plait_error *err)
{
    *comm = text;
    if (!strcmp(text, "auto") || !strcmp(text, "mpi") ||
        !strcmp(text, "socket"))
        return 0;
    return plait_errorf(err, "--comm must be auto, mpi or socket, not '%s'",
                        text);
}

static int refuse_unknown(int c, const struct option *table, const char *option,
                          struct plait_error *err)
{
    char advice[PLAIT_OPTION_ADVICE];

    if (c == ':')
        return plait_errorf(err, "%s needs a value; see --help", option);
    plait_option_advise(table, option, advice);
    return plait_errorf(err, "unknown option '%.60s'%s", option, advice);
}

int plait_option_read(const struct plait_option_list *list, int argc,
                      char **argv, void *arg, struct plait_error *err)
{
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", list->table, NULL)) != -1) {
        if (option == PLAIT_OPTION_HELP) {
            fputs(list->help, stdout);
            return 1;
        }
        if (option == PLAIT_OPTION_VERSION) {
            printf("%s %s\n", list->name, PACKAGE_VERSION);
            return 1;
        }
        if (option == ':' || option == '?')
            return refuse_unknown(option, list->table,
                                  plait_option_word(argc, argv), err);
        if (list->take(option, optarg, arg, err) < 0)
            return -1;
    }
    return 0;
}

int plait_option_operands(const char *const *names, const char *usage, int argc,
                          char **argv, struct plait_error *err)
{
    int at = optind;

    for (; *names && at < argc && argv[at][0]; names++)
        at++;
    if (*names)
        return plait_errorf(err, "%s is missing; usage: %s (see --help)",
                            *names, usage);
    if (at < argc && strchr(argv[at], '.') && strchr(argv[at], '='))
        return plait_errorf(err,
                            "unexpected argument '%.60s'; did you mean --set "
                            "%.60s?",
                            argv[at], argv[at]);
    if (at < argc)
        return plait_errorf(err,
                            "unexpected argument '%.60s'; usage: %s (see "
                            "--help)",
                            argv[at], usage);
    return 0;
}
