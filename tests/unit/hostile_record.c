/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/stuck/record.h"
#include "topology/base/clock.h"

/* A process with a record as only a hostile one writes it, for
 * tests/cli/stuck_hostile.sh: `hostile_record WAY [UID]`. It says "ready", and
 * ends by itself. */

#define ESCAPE "\033[2J\033]0;x\007"

static void fill(struct plait_record *r)
{
    struct plait_record_group *g = plait_record_add_group(r, "world", 0, 2, 0);

    r->run = 1;
    r->world = 2;
    plait_record_enter(g, PLAIT_OP_ALL_REDUCE, 64, 0, plait_clock_now());
    r->magic = PLAIT_RECORD_MAGIC;
}

static void write_escapes(struct plait_record *r)
{
    snprintf(r->job, sizeof(r->job), "7\nall is well%s", ESCAPE);
    memset(r->host, '\033', sizeof(r->host));
    memset(r->where, '\n', sizeof(r->where));
    atomic_store(&r->blocked, 1);
    memcpy(r->group[0].name, ESCAPE, sizeof(ESCAPE) - 1);
}

static void write_numbers(struct plait_record *r)
{
    struct plait_record_group *g = &r->group[0];

    r->world = -1;
    atomic_store(&r->ngroups, 1 << 30);
    atomic_store(&r->phase, -5);
    atomic_store(&r->phase_since, -1e300);
    g->index = 1 << 30;
    g->first = -7;
    atomic_store(&g->waits, UINT64_MAX);
    atomic_store(&g->last[0][1].tag, UINT64_MAX);
    atomic_store(&g->peer, -1);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    uid_t uid = argc > 2 ? (uid_t)atoi(argv[2]) : getuid();
    struct plait_record *r;
    int fd, own = strcmp(way, "owner") != 0;

    if (own && setresuid(uid, uid, uid) < 0)
        return 1;
    r = plait_record_create(&fd);
    if (!r)
        return 1;
    fill(r);
    if (!strcmp(way, "escapes"))
        write_escapes(r);
    if (!strcmp(way, "numbers"))
        write_numbers(r);
    if (!own && setresuid(uid, uid, uid) < 0)
        return 1;
    prctl(PR_SET_DUMPABLE, 1);
    puts("ready");
    fflush(stdout);
    sleep(1);
    /* Between the two looks of plait-stuck. */
    if (!strcmp(way, "cut") && ftruncate(fd, 0) < 0)
        return 1;
    sleep(300);
    return 0;
}
