/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/tensor_slice.h"

#include <string.h>

/* A half-open range of rows or columns of the whole tensor. */
struct range {
    uint64_t begin, end;
};

static struct range overlap(struct range a, struct range b)
{
    struct range r = {a.begin > b.begin ? a.begin : b.begin,
                      a.end < b.end ? a.end : b.end};

    if (r.end < r.begin)
        r.end = r.begin;
    return r;
}

/* The rows that the run touches, without padding. */
static struct range rows(const struct plait_tensor_slice *p)
{
    struct range inside = {0, p->shape[0]}, run = {0, 0};

    if (p->count == 0)
        return run;
    run.begin = p->begin[0] + p->first / p->box[1];
    run.end = p->begin[0] + (p->first + p->count - 1) / p->box[1] + 1;
    return overlap(run, inside);
}

/* Its columns in one of those rows: the first and the last row may be cut. */
static struct range columns(const struct plait_tensor_slice *p, uint64_t row)
{
    uint64_t start = (row - p->begin[0]) * p->box[1];
    struct range inside = {0, p->shape[1]}, run = {0, p->box[1]};

    if (p->first > start)
        run.begin = p->first - start;
    if (p->first + p->count < start + p->box[1])
        run.end = p->first + p->count - start;
    run.begin += p->begin[1];
    run.end += p->begin[1];
    return overlap(run, inside);
}

uint64_t plait_tensor_slice_inside(const struct plait_tensor_slice *p)
{
    struct range r = rows(p), c;
    uint64_t n = 0;

    for (uint64_t row = r.begin; row < r.end; row++) {
        c = columns(p, row);
        n += c.end - c.begin;
    }
    return n;
}

/* Where an element of the whole tensor lies in the run. */
static uint64_t position(const struct plait_tensor_slice *p, uint64_t row,
                         uint64_t column)
{
    return (row - p->begin[0]) * p->box[1] + (column - p->begin[1]) - p->first;
}

bool plait_tensor_slice_meets(const struct plait_tensor_slice *a,
                              const struct plait_tensor_slice *b)
{
    struct range r = overlap(rows(a), rows(b)), c;

    for (uint64_t row = r.begin; row < r.end; row++) {
        c = overlap(columns(a, row), columns(b, row));
        if (c.begin < c.end)
            return true;
    }
    return false;
}

uint64_t plait_tensor_slice_copy(const struct plait_tensor_slice *to,
                                 float *to_data,
                                 const struct plait_tensor_slice *from,
                                 const float *from_data)
{
    struct range r = overlap(rows(to), rows(from)), c;
    uint64_t n = 0;

    for (uint64_t row = r.begin; row < r.end; row++) {
        c = overlap(columns(to, row), columns(from, row));
        if (c.begin == c.end)
            continue;
        memcpy(to_data + position(to, row, c.begin),
               from_data + position(from, row, c.begin),
               (c.end - c.begin) * sizeof(float));
        n += c.end - c.begin;
    }
    return n;
}
