/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

/* One step is in use, the others are read ahead. */
enum { SLOTS = 4 };

struct slot {
    int32_t *input, *target;
    int failed; /* errno */
    struct plait_error err;
};

struct plait_loader {
    const struct plait_dataset *ds;
    uint64_t seed;
    int seq_len, vocab;
    int64_t global_batch, first, count;
    int64_t samples;
    struct slot slots[SLOTS];
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t filled, taken; /* steps, from the first one; taken includes the
                              one in use */
    bool stop;
};

/* Which sample is entry i of a step. */
static int64_t entry(const struct plait_loader *l, int64_t step, int64_t i)
{
    return plait_sample_index(l->seed, l->samples,
                              step * l->global_batch + l->first + i);
}

static void fill(struct plait_loader *l, struct slot *slot, int64_t step)
{
    int64_t i;

    slot->failed = 0;
    for (i = 0; i < l->count; i++)
        plait_dataset_expect(l->ds, entry(l, step, i), l->seq_len);
    for (i = 0; i < l->count; i++) {
        if (plait_dataset_read(l->ds, entry(l, step, i), l->seq_len, l->vocab,
                               slot->input + i * l->seq_len,
                               slot->target + i * l->seq_len, &slot->err) < 0) {
            slot->failed = errno ? errno : EIO;
            return;
        }
    }
}

struct start {
    struct plait_loader *loader;
    int64_t step;
};

static void *run(void *arg)
{
    struct start start = *(struct start *)arg;
    struct plait_loader *l = start.loader;
    int64_t n;

    free(arg);
    pthread_mutex_lock(&l->lock);
    for (n = 0; !l->stop; n++) {
        /* The slot of the step in use comes round last. */
        while (!l->stop && n - l->taken >= SLOTS - 1)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop)
            break;
        pthread_mutex_unlock(&l->lock);
        fill(l, &l->slots[n % SLOTS], start.step + n);
        pthread_mutex_lock(&l->lock);
        l->filled = n + 1;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* The thread takes no signals: they are the training loop's. */
static int start_thread(struct plait_loader *l, int64_t step)
{
    struct start *start = malloc(sizeof(*start));
    sigset_t all, before;
    int ret;

    if (!start)
        return -1;
    *start = (struct start){l, step};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ret = pthread_create(&l->thread, NULL, run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ret != 0) {
        free(start);
        errno = ret;
        return -1;
    }
    l->started = true;
    return 0;
}

static int alloc_slots(struct plait_loader *l)
{
    size_t n = (size_t)l->count * l->seq_len;
    int i;

    for (i = 0; i < SLOTS; i++) {
        l->slots[i].input = calloc(n, sizeof(int32_t));
        l->slots[i].target = calloc(n, sizeof(int32_t));
        if (!l->slots[i].input || !l->slots[i].target)
            return -1;
    }
    return 0;
}

struct plait_loader *plait_loader_create(const struct plait_dataset *ds,
                                         uint64_t seed, int seq_len, int vocab,
                                         int64_t global_batch, int64_t first,
                                         int64_t count, int64_t step,
                                         struct plait_error *err)
{
    struct plait_loader *l;

    if (plait_dataset_samples(ds, seq_len) < 1) {
        errno = EINVAL;
        plait_errorf(err,
                     "%s: %lld tokens are too few for one sequence of %d and "
                     "its next token",
                     plait_dataset_path(ds),
                     (long long)plait_dataset_tokens(ds), seq_len);
        return NULL;
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        plait_errorf(err, "data loader: out of memory");
        return NULL;
    }
    l->ds = ds;
    l->seed = seed;
    l->seq_len = seq_len;
    l->vocab = vocab;
    l->global_batch = global_batch;
    l->first = first;
    l->count = count;
    l->samples = plait_dataset_samples(ds, seq_len);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    if (alloc_slots(l) < 0 || start_thread(l, step) < 0) {
        plait_errorf(err, "data loader: %s", strerror(errno));
        plait_loader_destroy(l);
        return NULL;
    }
    return l;
}

void plait_loader_destroy(struct plait_loader *l)
{
    int saved = errno, i;

    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    for (i = 0; i < SLOTS; i++) {
        free(l->slots[i].input);
        free(l->slots[i].target);
    }
    free(l);
    errno = saved;
}

int plait_loader_next(struct plait_loader *l, const int32_t **input,
                      const int32_t **target, struct plait_error *err)
{
    const struct slot *slot;

    pthread_mutex_lock(&l->lock);
    slot = &l->slots[l->taken % SLOTS];
    while (l->filled <= l->taken)
        pthread_cond_wait(&l->changed, &l->lock);
    if (!slot->failed) {
        l->taken++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (slot->failed) {
        errno = slot->failed;
        return plait_errorf(err, "%s", slot->err.text);
    }
    *input = slot->input;
    *target = slot->target;
    return 0;
}
