/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/shm/bells.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/shm/shm_map.h"
#include "runtime/stuck/look.h"
#include "topology/base/hash.h"

struct bell {
    _Alignas(64) _Atomic uint32_t dozes; /* 1: its rank sleeps, or is about
                                            to */
};

struct plait_bells {
    int me, nnear;
    int ranks, cores;  /* that share too few cores; 0: there are enough */
    int *place;        /* [size of the world] index of its bell, -1: on
                          another machine */
    struct bell *bell; /* [nnear] */
};

/* What a rank tells the others about its place. */
struct site {
    uint64_t node, cpus; /* cpus: a hash of the cores it may use */
};

/* Equal for processes that share named memory (/dev/shm). */
static uint64_t node_hash(void)
{
    char boot[40];
    struct stat st;
    uint64_t hash;

    plait_stuck_read_line("/proc/sys/kernel/random/boot_id", boot,
                          sizeof(boot));
    hash = plait_hash_text(PLAIT_HASH_START, boot);
    if (stat("/dev/shm", &st) == 0)
        hash += (uint64_t)st.st_dev * 1000003 + st.st_ino;
    return hash;
}

static struct site own_site(int *ncpus)
{
    struct site site = {.node = node_hash()};
    cpu_set_t cpus;

    *ncpus = INT_MAX;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
        return site;
    *ncpus = CPU_COUNT(&cpus);
    site.cpus = plait_hash_bytes(PLAIT_HASH_START, &cpus, sizeof(cpus));
    return site;
}

/* Number the ranks of this machine; returns the lowest of them. */
static int find_near(struct plait_bells *b, const struct site *all, int n,
                     int ncpus)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int lowest = b->me, alike = 0;

    for (int r = 0; r < n; r++) {
        bool near = all[r].node == all[b->me].node;

        b->place[r] = near ? b->nnear++ : -1;
        if (near && r < lowest)
            lowest = r;
        alike += near && all[r].cpus == all[b->me].cpus;
    }
    if (alike > ncpus) {
        b->ranks = alike;
        b->cores = ncpus;
    } else if (online > 0 && b->nnear > online) {
        b->ranks = b->nnear;
        b->cores = (int)online;
    }
    return lowest;
}

/* The lowest rank of each machine creates the memory, then the others open it.
 * *failed: whether that failed on any rank. */
static int share_bells(struct plait_bells *b, struct plait_comm *world,
                       uint64_t id, int lowest, double *failed)
{
    size_t size = (size_t)b->nnear * sizeof(*b->bell);
    bool first = lowest == b->me;
    char name[64];
    int rc, saved;

    snprintf(name, sizeof(name), "/plait-%016" PRIx64 "-bells-%d", id, lowest);
    if (first) {
        plait_shm_sweep();
        b->bell = plait_shm_map(name, true, size);
    }
    *failed = first && !b->bell;
    rc = plait_comm_host_all_reduce(world, failed, 1, PLAIT_MAX);
    if (rc == 0 && *failed == 0) {
        if (!first)
            b->bell = plait_shm_map(name, false, size);
        *failed = !b->bell;
        rc = plait_comm_host_all_reduce(world, failed, 1, PLAIT_MAX);
    }
    saved = errno;
    if ((first && b->bell) || rc < 0) /* the first may be gone */
        shm_unlink(name);
    errno = saved;
    return rc;
}

int plait_bells_create(struct plait_comm *world, uint64_t id,
                       struct plait_bells **bells)
{
    int n = plait_comm_size(world), ncpus, rc = -1;
    struct plait_bells *b = calloc(1, sizeof(*b));
    struct site mine = own_site(&ncpus), *all = calloc((size_t)n, sizeof(*all));
    double failed = 1;

    *bells = NULL;
    if (b)
        b->place = malloc((size_t)n * sizeof(*b->place));
    if (plait_comm_ready(world, b && all && b->place) == 0) {
        b->me = plait_comm_rank(world);
        rc = plait_comm_host_all_gather(world, &mine, all, sizeof(mine));
    }
    if (rc == 0)
        rc = share_bells(b, world, id, find_near(b, all, n, ncpus), &failed);
    free(all);
    if (rc == 0 && failed == 0)
        *bells = b;
    else
        plait_bells_destroy(b);
    return rc;
}

void plait_bells_destroy(struct plait_bells *b)
{
    int saved = errno;

    if (!b)
        return;
    if (b->bell)
        munmap(b->bell, (size_t)b->nnear * sizeof(*b->bell));
    free(b->place);
    free(b);
    errno = saved;
}

bool plait_bells_near(const struct plait_bells *b, int rank)
{
    return b && b->place[rank] >= 0;
}

int plait_bells_crowded(const struct plait_bells *b, int *ranks)
{
    *ranks = b ? b->ranks : 0;
    return b ? b->cores : 0;
}

/* The two fences make sure that either the sleeper sees what was done before
 * the ring, or the one who rings sees that it dozes. */
void plait_bells_doze(struct plait_bells *b)
{
    atomic_store(&b->bell[b->place[b->me]].dozes, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void plait_bells_rest(struct plait_bells *b, int ms)
{
    const struct timespec most = {ms / 1000, ms % 1000 * 1000000L};
    _Atomic uint32_t *dozes = &b->bell[b->place[b->me]].dozes;

    syscall(SYS_futex, dozes, FUTEX_WAIT, 1, &most, NULL, 0);
    atomic_store_explicit(dozes, 0, memory_order_relaxed);
}

void plait_bells_ring(struct plait_bells *b, int rank)
{
    _Atomic uint32_t *dozes;

    if (!plait_bells_near(b, rank))
        return;
    atomic_thread_fence(memory_order_seq_cst);
    dozes = &b->bell[b->place[rank]].dozes;
    if (atomic_load_explicit(dozes, memory_order_relaxed) != 0 &&
        atomic_exchange(dozes, 0) != 0)
        syscall(SYS_futex, dozes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
