/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_OPTION_H
#define PLAIT_RUNTIME_TRAIN_OPTION_H

#include <stdint.h>

#include "runtime/train/session.h"

/* Numbers of a command line: all of `text`, from `least` to `most`. -1 with
 * text that names the option. */
int plait_option_count(const char *option, const char *text, int64_t least,
                       int64_t most, int64_t *value, struct plait_error *err);
int plait_option_number(const char *option, const char *text, double least,
                        double most, double *value, struct plait_error *err);

/* auto, cuda or cpu */
int plait_option_device(const char *text, const char **device,
                        struct plait_error *err);

/* What getopt_long() has not understood: `c` is ':' or '?'. -1 */
int plait_option_unknown(int c, const char *option, struct plait_error *err);

#endif
