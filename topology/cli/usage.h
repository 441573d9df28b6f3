/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_USAGE_H
#define PLAIT_TOPOLOGY_CLI_USAGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "topology/base/error.h"
#include "topology/layout/layout.h"

/* plait usage: which steps were planned, from slurmd's log and sacct; and which
 * jobs have flags. */

enum { USAGE_UNKNOWN = -1 };

/* Where a log line has no date that is known. */
#define USAGE_UNDATED INT64_MIN

struct usage_step {
    unsigned job, step, uid;
    int size[PLAIT_NAXES];
    int tasks, nodes;
    int preflight;   /* it measured nodes before a step */
    int64_t time;    /* when it began, in seconds since the epoch */
    int64_t elapsed; /* seconds; USAGE_UNKNOWN: sacct does not say */
    int64_t apart;   /* from sacct's time, of which the nearest counts */
    int known;       /* sacct knows the job as this user's */
    char *user;      /* NULL: only uid is known */
    char *account;   /* NULL: not known */
};

struct usage {
    struct usage_step *steps;
    size_t n, room;
    int64_t since;  /* lines before are left out; USAGE_UNDATED: none */
    size_t undated; /* lines left out, as they have no date */
};

/* Add a line of a log, if it tells of a planned step. -1 without memory. */
int usage_add_line(struct usage *usage, const char *line);
/* Add the lines of a log. -1 with errno. */
int usage_add_file(struct usage *usage, FILE *file);
/* Each node logs a step: keep one of its lines. */
void usage_merge(struct usage *usage);
void usage_clear(struct usage *usage);

/* "2026-11-01", "2026-11-01T08:00:00", "7d" or "12h" (before `now`). */
int usage_parse_since(const char *text, int64_t now, int64_t *since,
                      struct plait_error *err);

/* What sacct knows of the steps; they have been merged. -1 where it fails. */
int usage_ask_sacct(struct usage *usage, struct plait_error *err);
/* The same from its output, with the fields that usage_ask_sacct() wants. */
int usage_read_sacct(struct usage *usage, char *text);

/* The output of `scontrol show config`, NULL with the reason in err. */
char *usage_config(struct plait_error *err);
/* A setting of it; "" where there is none, or it is "(null)". */
void usage_setting(const char *config, const char *name, char *value,
                   size_t size);

/* plait usage --queued. Returns the exit status. */
int usage_queued(int json);

/* Print the steps as a table, or as JSON. `accounts`: sacct was asked. */
void usage_print(const struct usage *usage, int accounts);
int usage_print_json(const struct usage *usage, int accounts);

#endif
