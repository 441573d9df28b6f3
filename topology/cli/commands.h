/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_COMMANDS_H
#define PLAIT_TOPOLOGY_CLI_COMMANDS_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "topology/base/yaml.h"
#include "topology/job/gpu_types.h"

/* The commands built into `plait`. Each gets its own argv, with argv[0] set
 * to "plait" so that getopt_long's messages start with that name, and returns
 * the exit status. */

enum plait_exit {
    PLAIT_EXIT_GOOD = 0,
    PLAIT_EXIT_FAILED = 1,
    PLAIT_EXIT_USAGE = 2
};

int plait_cmd_topo(int argc, char **argv);
int plait_cmd_plan(int argc, char **argv);
int plait_cmd_estimate(int argc, char **argv);
int plait_cmd_simulate(int argc, char **argv);
int plait_cmd_doctor(int argc, char **argv);
int plait_cmd_run(int argc, char **argv);
int plait_cmd_init(int argc, char **argv);
int plait_cmd_keys(int argc, char **argv);
int plait_cmd_site(int argc, char **argv);
int plait_cmd_usage(int argc, char **argv);
int plait_cmd_calibrate(int argc, char **argv);

/* Print "plait: ..." on stderr; return PLAIT_EXIT_FAILED. */
int plait_cmd_failed(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* The same for wrong usage; returns PLAIT_EXIT_USAGE. */
int plait_cmd_misused(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Print what getopt_long(), with opterr 0, has just refused, and the option
 * that was probably meant; returns PLAIT_EXIT_USAGE. letters: those of one
 * dash. */
int plait_cmd_refuse_option(const struct option *options, const char *letters,
                            int argc, char **argv);

/* plait_cmd_failed() or plait_cmd_misused(), depending on the status. */
int plait_cmd_ended(int status, const struct plait_error *err);

/* The figures of GPU type `name` (NULL: the site's own) as the site file has
 * them; site_file NULL: the one of plait_site_path(), if any. *like, unless
 * `like` is NULL, is what plait_site_like() says of it. */
int plait_cmd_gpu_type(const char *site_file, const char *name,
                       struct plait_gpu_type *type, const char **like,
                       struct plait_error *err);

/* Check that the site file can be read and has such a type: -1; else the reason
 * is printed and the exit status is returned. */
int plait_cmd_check_gpu_type(const char *site_file, const char *name);

/* Whether `plait init --model NAME` knows this model. */
bool plait_cmd_init_has(const char *name);

/* What a key of the configuration may be: "none|selective|full", "0 to 3". */
void plait_cmd_print_values(FILE *out, const struct plait_yaml_field *field);

/* Print one JSON document on stdout and drop the reference; NULL stands for
 * a document that could not be built. Returns the exit status. */
int plait_cmd_json(json_t *document);

/* Let print(arg, out) write the file `path`, "-" being stdout. Returns the
 * exit status. */
int plait_cmd_write(const char *path, void (*print)(const void *arg, FILE *out),
                    const void *arg);

#endif
