/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that reads the batches of the next steps while one is trained. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/blend.h"
#include "runtime/data/data.h"
#include "topology/base/thread.h"

/* The loader has room for this many steps: one is in use, the others are read
 * ahead. */
enum { STEPS = 4 };

/* One of the datasets, which are shuffled separately. */
struct source {
    const struct plait_dataset *ds;
    uint64_t seed;
    int64_t samples;
};

/* A sample of a dataset, and its number in the run over that dataset. */
struct place {
    const struct source *source;
    int64_t index, number;
};

/* A micro-batch. */
struct slot {
    int failed; /* errno */
    struct plait_error err;
};

struct plait_loader {
    int nsources;
    struct source *sources;
    struct plait_blend *blend;           /* NULL: one source */
    struct place *places;                /* [count], of one micro-batch */
    struct plait_sequence_form sequence; /* of tokens */
    const struct plait_image_form *form; /* for images; NULL: tokens */
    struct plait_image_form own_form;
    size_t input_size, target_size; /* elements of a sample */
    struct plait_share share;
    int nslots;
    struct slot *slots;
    float *pixels;           /* [nslots, count, input_size] for images */
    int32_t *input, *target; /* the same for tokens; target [.., target_size] */
    int32_t *starts;         /* as input; NULL without an end token */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    int64_t filled; /* micro-batches read, from the first one on */
    int64_t freed;  /* those that are no longer in use */
    int64_t taken;  /* those the caller got, including the ones in use */
    bool stop;
};

/* The position in the run of entry i of micro-batch n. */
static int64_t position(const struct plait_loader *l, int64_t n, int i)
{
    const struct plait_share *s = &l->share;

    return s->start + n * s->stride + s->first + i;
}

/* Find the sample of that entry. */
static void find_place(struct plait_loader *l, int64_t n, int i)
{
    struct place *p = &l->places[i];

    p->number = position(l, n, i);
    p->source = l->sources;
    if (l->blend)
        p->source += plait_blend_find(l->blend, p->number, &p->number);
    p->index =
        plait_sample_index(p->source->seed, p->source->samples, p->number);
}

/* The index of an entry in the arrays of all slots. */
static size_t place_of(const struct plait_loader *l, int64_t n, int i)
{
    return (size_t)(n % l->nslots) * l->share.count + i;
}

static void expect_entry(const struct plait_loader *l, int i)
{
    const struct place *p = &l->places[i];

    if (l->form)
        plait_dataset_expect_image(p->source->ds, p->index);
    else
        plait_dataset_expect(p->source->ds, p->index, l->sequence.seq_len);
}

/* The end token belongs to the document that it ends. */
static void find_starts(const struct plait_loader *l, size_t at)
{
    const int32_t *input = l->input + at * l->input_size;
    int32_t *starts = l->starts + at * l->input_size, start = 0;

    for (size_t i = 0; i < l->input_size; i++) {
        starts[i] = start;
        if (input[i] == l->sequence.end_token)
            start = (int32_t)i + 1;
    }
}

static int read_entry(struct plait_loader *l, int64_t n, int i,
                      struct plait_error *err)
{
    const struct place *p = &l->places[i];
    size_t at = place_of(l, n, i);
    int32_t *target = l->target + at * l->target_size;

    if (l->form)
        return plait_dataset_read_image(
            p->source->ds, l->form, p->index, p->number / p->source->samples,
            l->pixels + at * l->input_size, target, err);
    if (plait_dataset_read(p->source->ds, &l->sequence, p->index,
                           l->input + at * l->input_size, target, err) < 0)
        return -1;
    if (l->starts)
        find_starts(l, at);
    return 0;
}

static void fill_slot(struct plait_loader *l, int64_t n)
{
    struct slot *slot = &l->slots[n % l->nslots];

    slot->failed = 0;
    for (int i = 0; i < l->share.count; i++) {
        find_place(l, n, i);
        expect_entry(l, i);
    }
    for (int i = 0; i < l->share.count; i++) {
        if (read_entry(l, n, i, &slot->err) < 0) {
            slot->failed = errno ? errno : EIO;
            return;
        }
    }
}

static void *run_loader(void *arg)
{
    struct plait_loader *l = arg;

    pthread_mutex_lock(&l->lock);
    for (int64_t n = 0; !l->stop; n++) {
        /* Do not overwrite slots that the caller reads from. */
        while (!l->stop && n - l->freed >= l->nslots)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop)
            break;
        pthread_mutex_unlock(&l->lock);
        fill_slot(l, n);
        pthread_mutex_lock(&l->lock);
        l->filled = n + 1;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static int start_thread(struct plait_loader *l)
{
    l->started = plait_thread_create(&l->thread, run_loader, l) == 0;
    return l->started ? 0 : -1;
}

static int alloc_slots(struct plait_loader *l)
{
    size_t n = (size_t)l->nslots * l->share.count;

    l->slots = calloc(l->nslots, sizeof(*l->slots));
    l->places = calloc(l->share.count, sizeof(*l->places));
    l->target = calloc(n * l->target_size, sizeof(*l->target));
    if (l->form)
        l->pixels = calloc(n * l->input_size, sizeof(*l->pixels));
    else
        l->input = calloc(n * l->input_size, sizeof(*l->input));
    if (l->sequence.end_token >= 0 &&
        !(l->starts = calloc(n * l->input_size, sizeof(*l->starts))))
        return -1;
    return l->slots && l->places && l->target &&
                   (l->form ? !!l->pixels : !!l->input)
               ? 0
               : -1;
}

/* Takes ownership of the loader. */
static struct plait_loader *start_loader(struct plait_loader *l,
                                         const struct plait_share *share,
                                         int most, struct plait_error *err)
{
    l->share = *share;
    l->nslots = STEPS * most;
    if (alloc_slots(l) == 0 && start_thread(l) == 0)
        return l;
    plait_errorf(err, "data loader: %s", strerror(errno));
    plait_loader_destroy(l);
    return NULL;
}

/* Each source has its own order. The first one uses the seed itself, so that a
 * blend of one is the same as that dataset alone. */
static int set_source(struct plait_loader *l, int i,
                      const struct plait_dataset *ds, uint64_t seed,
                      struct plait_error *err)
{
    struct source *s = &l->sources[i];

    s->ds = ds;
    s->seed = seed + UINT64_C(0xd6e8feb86659fd93) * (uint64_t)i;
    s->samples = l->form ? plait_dataset_images(ds)
                         : plait_dataset_samples(ds, l->sequence.seq_len);
    if (s->samples >= 1)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: %lld tokens are too few for a sequence of %d and "
                        "the token after it",
                        plait_dataset_path(ds),
                        (long long)plait_dataset_tokens(ds),
                        l->sequence.seq_len);
}

/* A loader with room for n sources. */
static struct plait_loader *create_loader(int n, struct plait_error *err)
{
    struct plait_loader *l = calloc(1, sizeof(*l));

    if (l) {
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->changed, NULL);
        l->sequence.end_token = -1;
        l->nsources = n;
        l->sources = calloc((size_t)n, sizeof(*l->sources));
        if (l->sources)
            return l;
    }
    plait_errorf(err, "data loader: out of memory");
    plait_loader_destroy(l);
    return NULL;
}

struct plait_loader *
plait_loader_create_blend(const struct plait_mixture *mix, uint64_t seed,
                          const struct plait_sequence_form *form,
                          const struct plait_share *share, int most,
                          struct plait_error *err)
{
    struct plait_loader *l = create_loader(mix->n, err);

    if (!l)
        return NULL;
    l->sequence = *form;
    l->input_size = l->target_size = form->seq_len;
    for (int i = 0; i < mix->n; i++)
        if (set_source(l, i, mix->ds[i], seed, err) < 0)
            goto error;
    if (mix->n > 1 && !(l->blend = plait_blend_create(mix->weights, mix->n))) {
        plait_errorf(err, "data loader: %s", strerror(errno));
        goto error;
    }
    return start_loader(l, share, most, err);
error:
    plait_loader_destroy(l);
    return NULL;
}

struct plait_loader *
plait_loader_create_images(const struct plait_dataset *ds, uint64_t seed,
                           const struct plait_image_form *form,
                           const struct plait_share *share, int most,
                           struct plait_error *err)
{
    const int *shape = plait_dataset_image_shape(ds);
    struct plait_loader *l = create_loader(1, err);

    if (!l)
        return NULL;
    l->own_form = *form;
    l->form = &l->own_form;
    l->input_size = (size_t)shape[0] * shape[1] * shape[2];
    l->target_size = 1;
    if (set_source(l, 0, ds, seed, err) == 0)
        return start_loader(l, share, most, err);
    plait_loader_destroy(l);
    return NULL;
}

void plait_loader_destroy(struct plait_loader *l)
{
    int saved = errno;

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
    plait_blend_destroy(l->blend);
    free(l->sources);
    free(l->places);
    free(l->slots);
    free(l->pixels);
    free(l->input);
    free(l->target);
    free(l->starts);
    free(l);
    errno = saved;
}

/* The first of the next n micro-batches that could not be read; NULL: none. */
static const struct slot *find_failed(const struct plait_loader *l, int n)
{
    for (int i = 0; i < n; i++)
        if (l->slots[(l->taken + i) % l->nslots].failed)
            return &l->slots[(l->taken + i) % l->nslots];
    return NULL;
}

int plait_loader_next(struct plait_loader *l, int n, struct plait_error *err)
{
    const struct slot *failed;

    pthread_mutex_lock(&l->lock);
    l->freed = l->taken;
    pthread_cond_broadcast(&l->changed);
    while (l->filled < l->taken + n)
        pthread_cond_wait(&l->changed, &l->lock);
    failed = find_failed(l, n);
    if (!failed)
        l->taken += n;
    pthread_mutex_unlock(&l->lock);
    if (!failed)
        return 0;
    errno = failed->failed;
    return plait_errorf(err, "%s", failed->err.text);
}

int plait_loader_check(struct plait_loader *l, int n, struct plait_error *err)
{
    const struct slot *failed;

    pthread_mutex_lock(&l->lock);
    while (l->filled < l->taken + n)
        pthread_cond_wait(&l->changed, &l->lock);
    failed = find_failed(l, n);
    pthread_mutex_unlock(&l->lock);
    if (!failed)
        return 0;
    errno = failed->failed;
    return plait_errorf(err, "%s", failed->err.text);
}

void plait_loader_get(const struct plait_loader *l, int i,
                      const int32_t **input, const int32_t **target)
{
    size_t at = place_of(l, l->freed + i, 0);

    *input = l->input + at * l->input_size;
    *target = l->target + at * l->target_size;
}

const int32_t *plait_loader_starts(const struct plait_loader *l, int i)
{
    return l->starts ? l->starts + place_of(l, l->freed + i, 0) * l->input_size
                     : NULL;
}

void plait_loader_get_images(const struct plait_loader *l, int i,
                             const float **pixels, const int32_t **labels)
{
    size_t at = place_of(l, l->freed + i, 0);

    *pixels = l->pixels + at * l->input_size;
    *labels = l->target + at;
}
