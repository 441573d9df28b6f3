/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_OPTION_WORDS_H
#define PLAIT_TOPOLOGY_BASE_OPTION_WORDS_H

#include <getopt.h>

/* What is said of an option that a program does not have: the one of its own
 * that was probably meant, or what users of mpirun, torchrun and other trainers
 * do here. */

enum { PLAIT_OPTION_ADVICE = 200 };

/* The word that getopt_long() has just refused, with opterr 0. */
const char *plait_option_word(int argc, char **argv);

/* "; did you mean --model?", "; see --help" or the like. `table` is
 * getopt_long()'s. */
void plait_option_advise(const struct option *table, const char *word,
                         char text[PLAIT_OPTION_ADVICE]);

#endif
