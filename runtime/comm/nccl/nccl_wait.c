/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's calls have come to. Making communicators and registering memory
 * have a time limit: NCCL itself would wait for ever for a rank that it cannot
 * reach. Transfers have none here, as a peer may rightly come late: the
 * watchdog of the run knows what the others do. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/comm/nccl/nccl_private.h"
#include "topology/base/clock.h"
#include "topology/base/thread.h"

/* How often to poll NCCL before sleeping between polls: a millisecond at
 * most. */
#define AWAKE_POLLS 1000
/* Seconds that the abort of a communicator may take which NCCL has not made. */
#define ABORT_S 5

/* -- limits --------------------------------------------------------------- */

int nccl_limit_check(struct plait_error *err)
{
    const char *text = getenv("PLAIT_NCCL_TIMEOUT");
    char *end = NULL;

    if (text == NULL || *text == '\0')
        return 0;
    if (strtod(text, &end) >= 0 && *end == '\0')
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "PLAIT_NCCL_TIMEOUT=%s: must be a number of seconds, "
                        "0 for no limit",
                        text);
}

struct abort {
    ncclComm_t *all; /* [n] */
    int n;
    atomic_int left; /* of its two threads; the last one frees it */
    atomic_bool done;
};

static void leave_abort(struct abort *a)
{
    if (atomic_fetch_sub(&a->left, 1) != 1)
        return;
    free(a->all);
    free(a);
}

static void abort_group(ncclComm_t *all, int n)
{
    ncclGroupStart();
    for (int i = 0; i < n; i++)
        ncclCommAbort(all[i]);
    ncclGroupEnd();
}

static void *run_abort(void *arg)
{
    struct abort *a = arg;

    abort_group(a->all, a->n);
    atomic_store(&a->done, true);
    leave_abort(a);
    return NULL;
}

void nccl_abort_within(ncclComm_t *all, int n, double seconds)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    double until = plait_clock_now() + seconds;
    struct abort *a = n > 0 ? calloc(1, sizeof(*a)) : NULL;
    pthread_t thread;

    if (a == NULL) {
        abort_group(all, n);
        free(all);
        return;
    }
    a->all = all;
    a->n = n;
    atomic_store(&a->left, 2);
    if (plait_thread_create(&thread, run_abort, a) == 0)
        pthread_detach(thread);
    else
        run_abort(a);
    while (!atomic_load(&a->done) && plait_clock_now() < until)
        nanosleep(&pause, NULL);
    leave_abort(a);
}

void nccl_abort_late(ncclComm_t nccl)
{
    ncclComm_t *all = malloc(sizeof(*all));

    if (all == NULL)
        return;
    all[0] = nccl;
    nccl_abort_within(all, 1, ABORT_S);
}

/* -- results -------------------------------------------------------------- */

bool nccl_is_broken(ncclResult_t state)
{
    return state != ncclSuccess && state != ncclInProgress &&
           state != ncclUnhandledCudaError;
}

/* The lock is not held. In an elastic run the watch says what an error is: NCCL
 * notices a loss, too. */
ncclResult_t nccl_state(struct nccl_comm *c)
{
    ncclResult_t state = ncclInvalidUsage, r;

    if (atomic_load(&c->world->lost))
        return ncclRemoteError;
    pthread_mutex_lock(&c->lock);
    r = c->nccl != NULL ? ncclCommGetAsyncError(c->nccl, &state)
                        : ncclInvalidUsage;
    pthread_mutex_unlock(&c->lock);
    if (r == ncclSuccess && state == ncclRemoteError &&
        c->world->host->vtable->look != NULL)
        return ncclInProgress;
    return r != ncclSuccess ? r : state;
}

int nccl_failed(struct nccl_comm *c, const char *what, ncclResult_t r)
{
    struct plait_comm *comm = &c->base;
    const char *detail = "";

    if (c->late)
        return plait_comm_fail(comm,
                               "%s: NCCL: %s: has not ended for %.0f s "
                               "(PLAIT_NCCL_TIMEOUT), though all %d ranks "
                               "have come to it; NCCL_DEBUG=INFO shows where",
                               comm->name, what, plait_nccl_limit(),
                               comm->host != NULL ? comm->host->size
                                                  : c->world->host->size);
    if (atomic_load(&c->world->lost) && c->world->why[0] != '\0')
        return plait_comm_fail(comm, "%s", c->world->why);
    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
        detail = ncclGetLastError(c->nccl);
    pthread_mutex_unlock(&c->lock);
    return plait_comm_fail(comm, "%s: NCCL: %s: %s%s%s", comm->name, what,
                           ncclGetErrorString(r), *detail != '\0' ? ": " : "",
                           detail);
}

/* NCCL executes calls in a thread of its own, mostly in less time than falling
 * asleep takes, but connecting takes long. The state is asked for even after
 * success: ncclCommWindowRegister() of NCCL 2.28 returns it too early. */
ncclResult_t nccl_await(struct nccl_comm *c, ncclResult_t r, double seconds)
{
    const struct timespec pause = {.tv_nsec = 10000};
    double until = seconds > 0 ? plait_clock_now() + seconds : 0;
    int polls = 0;

    if (r == ncclSuccess)
        r = ncclInProgress;
    while (r == ncclInProgress && !c->base.failed && !c->late) {
        r = nccl_state(c);
        if (r == ncclInProgress && polls++ < AWAKE_POLLS)
            sched_yield();
        else if (r == ncclInProgress && until > 0 && plait_clock_now() > until)
            c->late = true;
        else if (r == ncclInProgress)
            nanosleep(&pause, NULL);
    }
    return r;
}

int nccl_settle_within(struct nccl_comm *c, const char *what, ncclResult_t r,
                       double seconds)
{
    r = nccl_await(c, r, seconds);
    if (c->base.failed) {
        errno = EIO;
        return -1;
    }
    return r == ncclSuccess ? 0 : nccl_failed(c, what, r);
}

int nccl_settle(struct nccl_comm *c, const char *what, ncclResult_t r)
{
    return nccl_settle_within(c, what, r, 0);
}

/* -- of all ranks --------------------------------------------------------- */

bool nccl_all_ready(struct nccl_comm *c, bool ready, struct plait_error *err)
{
    struct plait_comm *host = c->world->host;
    double failed = !ready;

    if (host->vtable->host_all_reduce(host, &failed, 1, PLAIT_WORST) < 0) {
        if (ready)
            plait_errorf(err, "rank %d: NCCL: the ranks do not come: %s",
                         host->rank, host->error);
        return false;
    }
    host->agreed = failed > 0;
    return failed <= 0;
}
