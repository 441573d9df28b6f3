/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

/* What a rank can send at once; memory is used as far as it is written. */
#define STAGE ((size_t)256 << 20)
/* Between two looks at what nobody wakes for, nanoseconds. */
#define LOOK 20000000

struct wait {
    int rank; /* for this one; -1: not waiting */
    /* until it has posted this, or (job >= 0) taken what it is sent */
    enum emu_meeting meeting;
    uint64_t comm;
    unsigned number;
    int job;
    char name[64];
};

struct seat {
    pthread_mutex_t alive; /* its thread that has joined holds it */
    bool joined, ended;
    int node; /* EMULATED_NODE: GPUs of one read each other's memory; 0: none */
    bool gone;
    int n;
    struct emu_post post[EMU_POSTS];
    struct wait wait;
};

/* A rank may be killed wherever it is: the lock passes on, and a condition
 * variable would wait for it. */
struct shared {
    pthread_mutex_t lock;
    uint32_t moves; /* how often something has moved: a futex */
    int joined;
    struct seat seat[EMU_RANKS];
    char broken[512]; /* what has gone wrong, for all */
};

struct emu_board {
    struct shared *shared;
    bool locked; /* by this rank */
    char *stage;
    int rank, n;
};

#define HEAD (((sizeof(struct shared) >> 16) + 1) << 16)
#define BYTES (HEAD + EMU_RANKS * STAGE)

/* -- life -------------------------------------------------------------------
 */

static struct shared *map(int fd)
{
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE, fd, 0);

    return p != MAP_FAILED ? p : NULL;
}

/* Memory without a name, which the others find by this process. */
int emu_board_create(char id[128])
{
    int fd = memfd_create("emulated-nccl", MFD_CLOEXEC);
    pthread_mutexattr_t lock;
    struct shared *s;

    if (fd < 0 || ftruncate(fd, (off_t)BYTES) < 0 || (s = map(fd)) == NULL)
        return -1;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&lock, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&s->lock, &lock);
    for (int r = 0; r < EMU_RANKS; r++)
        pthread_mutex_init(&s->seat[r].alive, &lock);
    munmap(s, BYTES);
    snprintf(id, 128, "/proc/%d/fd/%d", (int)getpid(), fd);
    return 0;
}

/* -1: *aborted was set meanwhile, and the lock is not held. A process that is
 * stopped while it holds the lock keeps it. */
static int lock_board(struct emu_board *b, const volatile bool *aborted)
{
    struct timespec until;
    int rc;

    do {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        rc = pthread_mutex_clocklock(&b->shared->lock, CLOCK_MONOTONIC, &until);
    } while (rc == ETIMEDOUT && !*aborted);
    if (rc == EOWNERDEAD)
        pthread_mutex_consistent(&b->shared->lock);
    b->locked = rc != ETIMEDOUT;
    return b->locked ? 0 : -1;
}

static void unlock_board(struct emu_board *b)
{
    b->locked = false;
    pthread_mutex_unlock(&b->shared->lock);
}

static void wake(struct shared *s)
{
    __atomic_add_fetch(&s->moves, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &s->moves, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The lock is held, and after -1 not any more. */
static int look(struct emu_board *b, const volatile bool *aborted)
{
    const struct timespec most = {.tv_nsec = LOOK};
    struct shared *s = b->shared;
    uint32_t moves = __atomic_load_n(&s->moves, __ATOMIC_SEQ_CST);

    unlock_board(b);
    syscall(SYS_futex, &s->moves, FUTEX_WAIT, moves, &most, NULL, 0);
    return lock_board(b, aborted);
}

struct emu_board *emu_board_join(const char id[128], int rank, int n)
{
    const bool aborted = false;
    struct emu_board *b = calloc(1, sizeof(*b));
    int fd = open(id, O_RDWR | O_CLOEXEC);

    if (b != NULL && fd >= 0 && n <= EMU_RANKS)
        b->shared = map(fd);
    if (n > EMU_RANKS)
        emu_fault("the emulated NCCL has 8 ranks at most, not %d", n);
    if (fd >= 0)
        close(fd);
    if (b == NULL || b->shared == NULL) {
        free(b);
        return NULL;
    }
    b->stage = (char *)b->shared + HEAD + (size_t)rank * STAGE;
    b->rank = rank;
    b->n = n;
    lock_board(b, &aborted);
    b->shared->seat[rank].node =
        getenv("EMULATED_NODE") ? atoi(getenv("EMULATED_NODE")) : 0;
    b->shared->seat[rank].wait.rank = -1;
    pthread_mutex_lock(&b->shared->seat[rank].alive);
    b->shared->seat[rank].joined = true;
    b->shared->joined++;
    unlock_board(b);
    return b;
}

bool emu_board_complete(const struct emu_board *b)
{
    return __atomic_load_n(&b->shared->joined, __ATOMIC_SEQ_CST) == b->n;
}

int emu_board_rank(const struct emu_board *b)
{
    return b->rank;
}

void emu_board_abandon(struct emu_board *b)
{
    b->shared->seat[b->rank].gone = true;
    wake(b->shared);
}

void emu_board_leave(struct emu_board *b)
{
    if (b == NULL)
        return;
    b->shared->seat[b->rank].joined = false;
    emu_board_abandon(b);
    pthread_mutex_unlock(&b->shared->seat[b->rank].alive);
    munmap(b->shared, BYTES);
    free(b);
}

/* -- waiting ------------------------------------------------------------------
 */

static struct emu_post *find_post(struct shared *s, int owner, int asks,
                                  enum emu_meeting meeting, uint64_t comm,
                                  unsigned number)
{
    struct seat *seat = &s->seat[owner];

    for (int i = 0; i < seat->n; i++) {
        struct emu_post *p = &seat->post[i];

        if (p->meeting == meeting && p->comm == comm && p->number == number &&
            (meeting == EMU_ALL || p->peer == asks))
            return p;
    }
    return NULL;
}

/* Whom the rank waits for, -1 where it can go on. */
static int waits_for(struct shared *s, int rank)
{
    const struct wait *w = &s->seat[rank].wait;

    if (w->rank < 0)
        return -1;
    if (w->job >= 0) {
        const struct emu_post *p = &s->seat[rank].post[w->job];

        return p->wanted & ~p->taken ? __builtin_ctz(p->wanted & ~p->taken)
                                     : -1;
    }
    return find_post(s, w->rank, rank, w->meeting, w->comm, w->number) != NULL
               ? -1
               : w->rank;
}

/* Whether those that this rank waits for wait for it. A rank that aborts its
 * communicators goes from one to the next of them, and is in no order. */
static void find_circle(struct emu_board *b)
{
    struct shared *s = b->shared;
    int next = b->rank, last = -1;

    for (int i = 0; i < b->n; i++) {
        if (s->seat[next].gone)
            return;
        last = next;
        next = waits_for(s, next);
        if (next < 0 || next == b->rank)
            break;
    }
    if (next != b->rank || last == b->rank || s->broken[0] != '\0')
        return;
    snprintf(s->broken, sizeof(s->broken),
             "streams: rank %d is in %s and waits for rank %d, rank %d is in "
             "%s and waits for rank %d: they enter transfers in different "
             "orders",
             b->rank, s->seat[b->rank].wait.name, waits_for(s, b->rank), last,
             s->seat[last].wait.name, b->rank);
}

/* Whether the process of a rank that has joined has ended, or begun anew by
 * exec, which unmaps a GPU's memory as well. Only the first that finds it asks
 * the lock: glibc's trylock keeps a lock that it calls not recoverable. */
static bool has_ended(const struct emu_board *b, int rank)
{
    struct seat *seat = &b->shared->seat[rank];
    int rc;

    if (seat->joined && !seat->ended && rank != b->rank) {
        rc = pthread_mutex_trylock(&seat->alive);
        if (rc == EOWNERDEAD)
            seat->ended = true;
        if (rc == 0 || rc == EOWNERDEAD)
            pthread_mutex_unlock(&seat->alive); /* for good, when it ended */
    }
    return seat->ended;
}

/* One that has not joined yet may. */
static bool is_alive(const struct emu_board *b, int rank)
{
    return rank < 0 || (!b->shared->seat[rank].gone && !has_ended(b, rank));
}

/* A kernel that reads a peer's memory by NVLink faults when the owner's process
 * dies, whose memory is unmapped under it: the GPU's context is gone. */
static void find_unmapped(const struct emu_board *b)
{
    const struct seat *seat = b->shared->seat;

    for (int r = 0; r < b->n; r++)
        if (r != b->rank && seat[r].node != 0 &&
            seat[r].node == seat[b->rank].node && has_ended(b, r))
            emu_fault("an illegal address: the memory of rank %d, which has "
                      "ended",
                      r);
}

/* Of a rank that does not come any more, since *since or now. */
static void lose_patience(struct shared *s, const char *name, int other,
                          double *since)
{
    struct timespec now;
    double seconds;

    clock_gettime(CLOCK_MONOTONIC, &now);
    seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (*since <= 0)
        *since = seconds;
    if (seconds - *since > EMU_PATIENCE_S && s->broken[0] == '\0')
        snprintf(s->broken, sizeof(s->broken),
                 "rank %d, which %s waits for, has ended, and nobody aborts it",
                 other, name);
}

/* The lock is held; after -1 perhaps not, as b->locked tells. */
static int wait_here(struct emu_board *b, const struct wait *w,
                     const volatile bool *aborted)
{
    struct shared *s = b->shared;
    double since = 0;

    s->seat[b->rank].wait = *w;
    for (;;) {
        int other = waits_for(s, b->rank);

        if (other < 0)
            break;
        find_unmapped(b); /* before the host notices the loss, and aborts */
        if (emu_faulted() != NULL || *aborted)
            break;
        if (!is_alive(b, other))
            lose_patience(s, w->name, other, &since);
        find_circle(b);
        if (s->broken[0] != '\0') {
            wake(s);
            emu_fault("%s", s->broken);
            break;
        }
        if (look(b, aborted) < 0)
            break;
    }
    s->seat[b->rank].wait.rank = -1;
    find_unmapped(b);
    return emu_faulted() != NULL || s->broken[0] != '\0' || *aborted ? -1 : 0;
}

/* -- transfers
 * ------------------------------------------------------------------
 */

/* 0: the lock is held. */
static int post_jobs(struct emu_board *b, struct emu_job *jobs, int n,
                     const volatile bool *aborted)
{
    struct seat *seat = &b->shared->seat[b->rank];
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        if (n > EMU_POSTS || jobs[i].bytes > STAGE - at) {
            emu_fault("the emulated NCCL has no room for %s",
                      jobs[i].post.name);
            return -1;
        }
        jobs[i].post.at = at;
        jobs[i].post.taken = 0;
        memcpy(b->stage + at, jobs[i].send, jobs[i].bytes);
        at += (jobs[i].bytes + 63) / 64 * 64;
    }
    if (lock_board(b, aborted) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        seat->post[i] = jobs[i].post;
    seat->n = n;
    wake(b->shared);
    return 0;
}

/* Of one of those that take part; the lock is held, after NULL as in
 * wait_here(). */
static struct emu_post *meet(struct emu_board *b, const struct emu_job *job,
                             int other, const volatile bool *aborted)
{
    const struct emu_post *mine = &job->post;
    struct shared *s = b->shared;
    struct wait w = {.rank = other,
                     .meeting = mine->meeting == EMU_ALL ? EMU_ALL : EMU_SEND,
                     .comm = mine->comm,
                     .number = mine->number,
                     .job = -1};
    struct emu_post *p;

    memcpy(w.name, mine->name, sizeof(w.name));
    if (wait_here(b, &w, aborted) < 0)
        return NULL;
    p = find_post(s, other, b->rank, w.meeting, w.comm, w.number);
    if (p->shape == mine->shape)
        return p;
    if (s->broken[0] == '\0')
        snprintf(s->broken, sizeof(s->broken),
                 "streams: rank %d is in %s and rank %d in %s: another "
                 "operation, count, type or root",
                 b->rank, mine->name, other, p->name);
    emu_fault("%s", s->broken);
    return NULL;
}

/* Takes what the others send; the lock is held, after -1 as in wait_here(). */
static int take(struct emu_board *b, const struct emu_job *job,
                const volatile bool *aborted)
{
    const void *in[EMU_RANKS] = {NULL};
    struct emu_post *post[EMU_RANKS] = {NULL};
    const char *stages = (char *)b->shared + HEAD;

    for (int r = 0; r < b->n; r++) {
        if ((job->ranks >> r & 1) == 0)
            continue;
        post[r] = meet(b, job, r, aborted);
        if (post[r] == NULL)
            return -1;
        in[r] = stages + (size_t)r * STAGE + post[r]->at;
    }
    unlock_board(b);
    job->take(job->arg, in);
    if (lock_board(b, aborted) < 0)
        return -1;
    for (int r = 0; r < b->n; r++)
        if (post[r] != NULL)
            post[r]->taken |= 1u << b->rank;
    wake(b->shared);
    return 0;
}

int emu_board_run(struct emu_board *b, struct emu_job *jobs, int n,
                  const volatile bool *aborted)
{
    int rc = 0;

    if (post_jobs(b, jobs, n, aborted) < 0)
        return -1;
    for (int i = 0; i < n && rc == 0; i++)
        if (jobs[i].post.meeting != EMU_SEND)
            rc = take(b, &jobs[i], aborted);
    for (int i = 0; i < n && rc == 0; i++) {
        struct wait w = {.rank = b->rank, .job = i};

        memcpy(w.name, jobs[i].post.name, sizeof(w.name));
        rc = wait_here(b, &w, aborted);
    }
    if (!b->locked)
        return -1;
    b->shared->seat[b->rank].n = 0;
    unlock_board(b);
    return rc;
}
