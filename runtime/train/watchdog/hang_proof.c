/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/stuck/proof.h"
#include "runtime/train/watchdog/hang_private.h"
#include "topology/base/clock.h"

/* Whether the ranks do anything, and whether they ever can. */

/* -- what they do ---------------------------------------------------------- */

/* Bytes that threads have read and written, by any call that counts there. */
static uint64_t count_io(const char *path)
{
    FILE *f = fopen(path, "re");
    uint64_t sum = 0, value;
    char line[100];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "rchar: %" SCNu64, &value) == 1 ||
            sscanf(line, "wchar: %" SCNu64, &value) == 1 ||
            sscanf(line, "read_bytes: %" SCNu64, &value) == 1)
            sum += value;
    if (f)
        fclose(f);
    return sum;
}

static uint64_t thread_io(int tid)
{
    char path[64];

    if (tid <= 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/io", tid);
    return count_io(path);
}

void plait_hang_except(struct plait_hang *h, int i, int tid)
{
    if (h)
        atomic_store(&h->except[i], tid);
}

/* Without what this thread, the heartbeat and claims read and write. */
static uint64_t own_io(struct plait_hang *h)
{
    uint64_t sum = count_io("/proc/self/io") - count_io("/proc/thread-self/io");

    if (h->beat)
        sum -= thread_io(plait_heartbeat_thread(h->beat));
    for (int i = 0; i < 2; i++)
        sum -= thread_io(atomic_load(&h->except[i]));
    return sum;
}

static uint64_t count_entered(const struct plait_record *record)
{
    int n = atomic_load(&record->ngroups);
    uint64_t sum = (uint64_t)atomic_load(&record->step);

    for (int i = 0; i < n && i < PLAIT_RECORD_GROUPS; i++)
        for (int s = 0; s < PLAIT_NSERIES; s++)
            sum += atomic_load(&record->group[i].entered[s]);
    return sum;
}

void plait_hang_moved(struct plait_hang *h)
{
    if (h && h->record)
        atomic_store(&h->record->moved, plait_clock_now());
}

void plait_hang_move(struct plait_hang *h)
{
    uint64_t entered, io;
    double since;

    if (!h || !h->record)
        return;
    entered = count_entered(h->record);
    since = atomic_load(&h->record->phase_since);
    io = own_io(h);
    if (entered != h->did.entered || since != h->did.since || io != h->did.io)
        plait_hang_moved(h);
    h->did.entered = entered;
    h->did.since = since;
    h->did.io = io;
}

static double least_idle(const struct plait_stuck_rank *ranks, int n)
{
    double least = -1;

    for (int i = 0; i < n; i++)
        if (ranks[i].state == PLAIT_STUCK_RUNS &&
            (least < 0 || ranks[i].idle < least))
            least = ranks[i].idle;
    return least < 0 ? 0 : least;
}

double plait_hang_idle(const struct plait_hang *h, bool all)
{
    struct plait_stuck_rank *ranks;
    double now = plait_clock_now(), last = 0, idle;

    for (int r = 0; !all && h && r < h->world; r++)
        if (h->peer[r] && atomic_load(&h->peer[r]->moved) > last)
            last = atomic_load(&h->peer[r]->moved);
    if (!all)
        return last > 0 ? now - last : 0;
    ranks = plait_hang_look_all(h, true);
    if (!ranks)
        return 0;
    idle = least_idle(ranks, h->world);
    free(ranks);
    return idle;
}

/* -- what they never can do ------------------------------------------------ */

double plait_hang_waits(const struct plait_hang *h)
{
    double now = plait_clock_now(), longest = 0;

    for (int r = 0; h && r < h->world; r++) {
        const struct plait_record *record = h->peer[r];
        int n = record ? atomic_load(&record->ngroups) : 0;

        for (int i = 0; i < n && i < PLAIT_RECORD_GROUPS; i++) {
            const struct plait_record_group *g = &record->group[i];
            double since = atomic_load(&g->since);

            if (atomic_load(&g->waits) && now - since > longest)
                longest = now - since;
        }
    }
    return longest;
}

int plait_hang_nodes(const struct plait_hang *h)
{
    return h ? h->contacts.nnodes : 1;
}

bool plait_hang_prove(const struct plait_hang *h, bool all, uint64_t *mark,
                      char *text, size_t size)
{
    struct plait_stuck_rank *ranks = plait_hang_look_all(h, all);
    struct plait_stuck_proof proof = {.n = 0};
    struct plait_verdict verdict;
    bool proved = false;

    if (ranks && plait_stuck_prove(ranks, h->world, &proof) == 0 &&
        proof.n > 0 && plait_stuck_judge(proof.rank, proof.n, &verdict) == 0) {
        plait_stuck_sentence(proof.rank, proof.n, &verdict, time(NULL), text,
                             size);
        *mark = proof.mark;
        proved = true;
    }
    plait_stuck_proof_clear(&proof);
    free(ranks);
    return proved;
}
