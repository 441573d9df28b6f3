/* SPDX-License-Identifier: Apache-2.0 */
/* How a slice is read; and plait_load_place(): in the layout that wrote a
 * checkpoint, its files are read once, and their bytes are copied to their
 * final places meanwhile. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/load_private.h"
#include "runtime/comm/consensus.h"

/* Bytes that are copied at a time: what fits in caches for host memory, more
 * where each copy is a call to a driver. */
#define HOST_PART ((size_t)256 << 10)
#define GPU_PART ((size_t)4 << 20)

/* A slice in a file. */
struct part {
    int file, slice;
    uint64_t begin, end; /* bytes */
};

struct placing {
    struct plait_sources_visitor visitor; /* first */
    struct plait_load *load;
    struct part *parts;     /* by file and offset */
    int n, next;            /* next: the first part that has not ended yet */
    struct plait_error bad; /* the first number that is not finite */
};

static bool is_same(const struct plait_tensor_slice *a,
                    const struct plait_tensor_slice *b)
{
    return memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           memcmp(a->begin, b->begin, sizeof(a->begin)) == 0 &&
           memcmp(a->box, b->box, sizeof(a->box)) == 0 &&
           a->first == b->first && a->count == b->count;
}

/* The only source of the slice, if it holds exactly the slice and no padding; a
 * file may have anything in padding. */
static const struct plait_source *find_same(const struct plait_load *l,
                                            const struct plait_tensor_slice *w)
{
    const struct plait_source *s = plait_sources_find(&l->from, w->name);
    const struct plait_source *end = l->from.sources + l->from.nsources;
    const struct plait_source *same = NULL;

    for (; s < end && !strcmp(s->slice.name, w->name); s++) {
        if (!plait_tensor_slice_meets(w, &s->slice))
            continue;
        if (same || !is_same(w, &s->slice))
            return NULL;
        same = s;
    }
    if (!same || same->offset % sizeof(float) ||
        plait_tensor_slice_inside(w) != w->count)
        return NULL;
    return same;
}

static int by_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The parts of a damaged head may overlap: such parts are read later, if at
 * all. */
static void drop_overlaps(struct placing *p)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        if (n == 0 || p->parts[n - 1].file != p->parts[i].file ||
            p->parts[n - 1].end <= p->parts[i].begin)
            p->parts[n++] = p->parts[i];
    p->n = n;
}

/* 8-bit codes can only be written as a whole piece. */
static bool goes_in_parts(const struct plait_load *l, int slice)
{
    return !l->optim || l->pieces[slice].home != PLAIT_PIECE_CODES;
}

static int list_parts(struct placing *p, const struct plait_comm *world)
{
    const struct plait_load *l = p->load;

    p->parts = calloc((size_t)l->nslices + 1, sizeof(*p->parts));
    if (!p->parts)
        return -1;
    for (int i = 0; i < l->nslices; i++) {
        const struct plait_source *s;

        if (!plait_load_reads(l, i) || !goes_in_parts(l, i))
            continue;
        s = find_same(l, &l->slices[i]);
        if (s && plait_sources_is_mine(world, s->file))
            p->parts[p->n++] = (struct part){
                .file = s->file,
                .slice = i,
                .begin = s->offset,
                .end = s->offset + s->slice.count * sizeof(float)};
    }
    qsort(p->parts, (size_t)p->n, sizeof(*p->parts), by_place);
    drop_overlaps(p);
    return 0;
}

/* Where a slice lies as fp32 in memory of the host; NULL: nowhere. */
static float *host_place(const struct plait_load *l, int slice)
{
    const struct plait_model *model = l->shards->model;

    if (!l->optim)
        return model->mesh->ops->gpu || l->data[slice].type != PLAIT_F32
                   ? NULL
                   : l->data[slice].at;
    if (l->pieces[slice].home == PLAIT_PIECE_BF16 ||
        (l->pieces[slice].home == PLAIT_PIECE_WEIGHTS &&
         l->shards->state_ops->gpu))
        return NULL;
    return l->pieces[slice].data;
}

/* Store n elements of a slice, from `first` on. */
static int store(const struct plait_load *l, int slice, size_t first,
                 const float *from, size_t n)
{
    const struct plait_weights_at *to;
    float *place = host_place(l, slice);

    if (place) {
        memcpy(place + first, from, n * sizeof(*from));
        return 0;
    }
    if (l->optim)
        return plait_optim_write_piece(l->optim, &l->pieces[slice], first, n,
                                       from);
    to = &l->data[slice];
    first *= plait_dtype_size(to->type);
    return plait_shards_write_weights(l->shards, (char *)to->at + first,
                                      to->type, from, n);
}

/* Place the part's elements that are in these bytes of its file. */
static int place_part(struct placing *p, const struct part *part, uint64_t at,
                      const char *bytes, size_t n)
{
    const struct plait_tensor_slice *slice = &p->load->slices[part->slice];
    uint64_t begin = part->begin > at ? part->begin : at;
    uint64_t end = part->end < at + n ? part->end : at + n;
    const float *from = (const float *)(const void *)(bytes + (begin - at));
    size_t first = (size_t)(begin - part->begin) / sizeof(float);
    size_t count = (size_t)(end - begin) / sizeof(float);

    if (!p->bad.text[0])
        plait_finite_check(slice->name, slice->first + first, from, count,
                           &p->bad);
    return store(p->load, part->slice, first, from, count);
}

static int place_bytes(struct plait_sources_visitor *visitor, int file,
                       uint64_t at, const char *bytes, size_t n)
{
    struct placing *p = (struct placing *)visitor;
    int i = p->next;

    while (i < p->n && p->parts[i].file < file)
        i++;
    for (; i < p->n && p->parts[i].file == file && p->parts[i].begin < at + n;
         i++) {
        if (place_part(p, &p->parts[i], at, bytes, n) < 0)
            return -1;
        if (p->parts[i].end > at + n)
            break;
    }
    p->next = i;
    return 0;
}

static bool goes_to_gpu(const struct plait_load *l)
{
    return l->optim ? l->shards->state_ops->gpu
                    : l->shards->model->mesh->ops->gpu;
}

/* Collective. */
static int read_files(struct placing *p, struct plait_comm *world,
                      struct plait_error *err)
{
    struct plait_load *l = p->load;
    int rc = 0;

    if (plait_sources_check(&l->from, world, &p->visitor, err) < 0)
        return -1;
    for (int i = 0; i < p->n; i++)
        l->placed[p->parts[i].slice] = true;
    if (p->bad.text[0]) {
        errno = EDOM;
        rc = plait_errorf(err, "%s: not finite: %s", l->from.path, p->bad.text);
    }
    return plait_error_consensus(world, rc, err);
}

/* Whether the run of the checkpoint counted no loads of experts, and so has
 * none for a router of this one, as --resume-anyway allows. */
static bool is_new_load(const struct plait_load *l, int i)
{
    const struct plait_source *s;

    if (!l->optim || !l->pieces[i].tensor->load)
        return false;
    s = plait_sources_find(&l->from, l->slices[i].name);
    return s == l->from.sources + l->from.nsources ||
           strcmp(s->slice.name, l->slices[i].name) != 0;
}

int plait_load_fill(const struct plait_load *l, int i, float *buffer,
                    struct plait_error *err)
{
    if (l->hf)
        return plait_hf_weights_fill(l->hf, &l->slices[i], buffer, err);
    if (!is_new_load(l, i))
        return plait_sources_fill(&l->from, &l->slices[i], buffer, err);
    memset(buffer, 0, l->slices[i].count * sizeof(*buffer));
    return 0;
}

int plait_load_place(struct plait_load *l, struct plait_comm *world,
                     struct plait_error *err)
{
    struct placing p = {
        .visitor = {place_bytes, goes_to_gpu(l) ? GPU_PART : HOST_PART},
        .load = l};
    int rc = 0;

    l->placed = calloc((size_t)l->nslices + 1, sizeof(*l->placed));
    if (!l->placed || list_parts(&p, world) < 0)
        rc = plait_errorf(err, "%s: out of memory", l->from.path);
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0)
        rc = read_files(&p, world, err);
    free(p.parts);
    return rc;
}
