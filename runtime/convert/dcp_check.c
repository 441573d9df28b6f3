/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a tensor before it is read: its chunks neither overlap nor leave
 * holes, and are in their files as .metadata says. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/convert/dcp_internal.h"

/* Above so many chunks the place of a hole is not looked for, which takes time
 * by the square of their number. */
#define LOOK_MOST 4096
/* Chunks that follow one and begin in rows of it, with which it is compared. */
#define BESIDE_MOST 2048

static void show_place(const struct plait_dcp_tensor *t,
                       const uint64_t begin[PLAIT_DCP_DIMS_MOST],
                       char shown[128])
{
    struct plait_dcp_tensor at = {.ndim = t->ndim};

    memcpy(at.shape, begin, sizeof(at.shape));
    plait_dcp_shape(&at, shown);
}

/* -- overlaps and holes --------------------------------------------------- */

static bool do_overlap(const struct plait_dcp_tensor *t,
                       const struct plait_dcp_chunk *a,
                       const struct plait_dcp_chunk *b)
{
    for (int d = 0; d < t->ndim; d++)
        if (a->begin[d] >= b->begin[d] + b->size[d] ||
            b->begin[d] >= a->begin[d] + a->size[d])
            return false;
    return true;
}

/* The numbers of all chunks, up to the first that are more than the tensor has:
 * an overlap. */
static int add_volumes(const struct plait_dcp *dcp,
                       const struct plait_dcp_tensor *t, uint64_t *sum,
                       uint64_t *all, struct plait_error *err)
{
    *sum = 0;
    *all = 1;
    for (int d = 0; d < t->ndim; d++)
        *all *= t->shape[d];
    for (int i = 0; i < t->nchunks; i++) {
        *sum += plait_dcp_volume(t, &t->chunks[i]);
        if (*sum > *all) /* before it could overflow */
            return plait_dcp_wrong(
                dcp, t->name,
                "has chunks that overlap: they have more numbers than it has",
                err);
    }
    return 0;
}

/* A chunk is compared with those that follow it, up to the first that begins
 * behind its end, since they are sorted by where they begin. */
static int check_overlaps(const struct plait_dcp *dcp,
                          const struct plait_dcp_tensor *t,
                          struct plait_error *err)
{
    char a[128], b[128], what[320];

    for (int i = 0; i < t->nchunks; i++) {
        const struct plait_dcp_chunk *c = &t->chunks[i];

        for (int k = i + 1; k < t->nchunks; k++) {
            const struct plait_dcp_chunk *other = &t->chunks[k];

            if (t->ndim && other->begin[0] >= c->begin[0] + c->size[0])
                break;
            if (k - i > BESIDE_MOST)
                return plait_dcp_wrong(
                    dcp, t->name,
                    "has too many chunks in the same rows: at most 2048 are "
                    "read",
                    err);
            if (!do_overlap(t, c, other))
                continue;
            show_place(t, c->begin, a);
            show_place(t, other->begin, b);
            snprintf(what, sizeof(what),
                     "has chunks that overlap: those at %s and %s", a, b);
            return plait_dcp_wrong(dcp, t->name, what, err);
        }
    }
    return 0;
}

static bool is_covered(const struct plait_dcp_tensor *t,
                       const uint64_t place[PLAIT_DCP_DIMS_MOST])
{
    struct plait_dcp_chunk one = {.nfile = 0};

    for (int d = 0; d < t->ndim; d++) {
        one.begin[d] = place[d];
        one.size[d] = 1;
    }
    for (int i = 0; i < t->nchunks; i++)
        if (do_overlap(t, &t->chunks[i], &one))
            return true;
    return false;
}

/* A place that no chunk covers: the first one of all, or behind a chunk. */
static bool find_hole(const struct plait_dcp_tensor *t,
                      uint64_t place[PLAIT_DCP_DIMS_MOST])
{
    memset(place, 0, PLAIT_DCP_DIMS_MOST * sizeof(*place));
    if (!is_covered(t, place))
        return true;
    for (int i = 0; i < t->nchunks && t->nchunks <= LOOK_MOST; i++)
        for (int d = 0; d < t->ndim; d++) {
            memcpy(place, t->chunks[i].begin,
                   PLAIT_DCP_DIMS_MOST * sizeof(*place));
            place[d] += t->chunks[i].size[d];
            if (place[d] < t->shape[d] && !is_covered(t, place))
                return true;
        }
    return false;
}

/* Chunks that do not overlap leave a hole where they have too few numbers. */
static int check_holes(const struct plait_dcp *dcp,
                       const struct plait_dcp_tensor *t, uint64_t n,
                       uint64_t all, struct plait_error *err)
{
    uint64_t place[PLAIT_DCP_DIMS_MOST];
    char at[128], what[320];

    if (n == all)
        return 0;
    snprintf(what, sizeof(what),
             "has a hole: no chunk has %" PRIu64 " of its %" PRIu64 " numbers",
             all - n, all);
    if (find_hole(t, place)) {
        show_place(t, place, at);
        snprintf(what + strlen(what), sizeof(what) - strlen(what),
                 ", the one at %s among them", at);
    }
    return plait_dcp_wrong(dcp, t->name, what, err);
}

/* -- files ---------------------------------------------------------------- */

/* Sizes of 1 apart, which a rank's part may have or not. */
static bool is_same_size(const struct plait_dcp_tensor *t,
                         const struct plait_dcp_chunk *c,
                         const struct plait_torch_array *a)
{
    int i = 0;

    for (int d = 0; d < t->ndim; d++) {
        if (c->size[d] == 1)
            continue;
        while (i < a->ndim && a->shape[i] == 1)
            i++;
        if (i == a->ndim || a->shape[i++] != c->size[d])
            return false;
    }
    while (i < a->ndim && a->shape[i] == 1)
        i++;
    return i == a->ndim;
}

static int check_array(const struct plait_dcp_tensor *t,
                       const struct plait_dcp_chunk *c,
                       const struct plait_torch_array *a,
                       struct plait_error *why)
{
    struct plait_dcp_tensor shown = {.ndim = a->ndim};
    char there[128], here[128];

    errno = EINVAL;
    if (a->type != t->type)
        return plait_errorf(why, "is of another type than .metadata says");
    if (is_same_size(t, c, a))
        return 0;
    memcpy(shown.shape, a->shape, sizeof(shown.shape));
    plait_dcp_shape(&shown, there);
    show_place(t, c->size, here);
    return plait_errorf(why, "is %s, by .metadata it must be %s", there, here);
}

static int check_chunk(const struct plait_dcp *dcp,
                       const struct plait_dcp_tensor *t,
                       struct plait_dcp_chunk *c, struct plait_error *err)
{
    struct plait_torch_array a;
    struct plait_torch_file *file;
    struct plait_error why;
    char path[4096], at[128];
    int rc;

    if (plait_dcp_path(dcp, t, c, path, err) < 0)
        return -1;
    if (c->transformed)
        return plait_dcp_wrong(dcp, t->name,
                               "is compressed (transform_descriptors)", err);
    file = plait_torch_file_open_at(path, c->offset, c->length, err);
    if (!file)
        return -1;
    rc = plait_torch_array_of(file, plait_torch_file_root(file), &a, &why);
    if (rc == 0)
        rc = check_array(t, c, &a, &why);
    if (rc == 0)
        c->data = c->offset + a.offset;
    plait_torch_file_close(file);
    show_place(t, c->begin, at);
    errno = EINVAL;
    return rc == 0 ? 0
                   : plait_errorf(err, "%s: chunk %s of tensor %.100s %s", path,
                                  at, t->name, why.text);
}

int plait_dcp_check(struct plait_dcp *dcp, int tensor, struct plait_error *err)
{
    struct plait_dcp_tensor *t = &dcp->tensors[tensor];
    uint64_t sum, all;
    char what[96];

    if (t->checked)
        return 0;
    if (!t->supported) {
        snprintf(what, sizeof(what), "is %s, not fp32, bf16 or fp16",
                 t->type_name);
        return plait_dcp_wrong(dcp, t->name, what, err);
    }
    /* In this order: chunks that are compared in pairs have no more numbers
     * than the tensor, so that a file of copies of one chunk takes no time; and
     * only chunks that do not overlap show by their sum that there is no hole.
     */
    if (add_volumes(dcp, t, &sum, &all, err) < 0 ||
        check_overlaps(dcp, t, err) < 0 ||
        check_holes(dcp, t, sum, all, err) < 0)
        return -1;
    for (int i = 0; i < t->nchunks; i++)
        if (check_chunk(dcp, t, &t->chunks[i], err) < 0)
            return -1;
    t->checked = true;
    return 0;
}
