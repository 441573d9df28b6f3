/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_OPTION_H
#define PLAIT_RUNTIME_TRAIN_OPTION_H

#include <getopt.h>
#include <stdint.h>

#include "runtime/train/session.h"

/* Parse a number of the command line: all of `text`, from `least` to `most`. -1
 * with err, which names the option. */
int plait_option_count(const char *option, const char *text, int64_t least,
                       int64_t most, int64_t *value, struct plait_error *err);
int plait_option_number(const char *option, const char *text, double least,
                        double most, double *value, struct plait_error *err);

/* auto, cuda or cpu */
int plait_option_device(const char *text, const char **device,
                        struct plait_error *err);

/* auto, mpi or socket */
int plait_option_comm(const char *text, const char **comm,
                      struct plait_error *err);

/* Entries of every program's table that plait_option_read() handles itself. */
enum { PLAIT_OPTION_HELP = 0x100, PLAIT_OPTION_VERSION };

/* A program's options. */
struct plait_option_list {
    const char *name; /* of the program, for its version */
    const char *help;
    const struct option *table; /* getopt_long()'s */
    /* Called for each option that is given. -1 with err. */
    int (*take)(int option, char *value, void *arg, struct plait_error *err);
};

/* 0: go on with argv[optind], 1: done (--help, --version), -1: wrong usage. */
int plait_option_read(const struct plait_option_list *list, int argc,
                      char **argv, void *arg, struct plait_error *err);

/* Whether what follows the options is one word for each of `names`, a list that
 * NULL ends, and none of them is empty. -1 with err. */
int plait_option_operands(const char *const *names, const char *usage, int argc,
                          char **argv, struct plait_error *err);

#endif
